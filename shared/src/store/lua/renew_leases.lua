-- renew: extends leases that are still held, even expired ones that nobody recovered.
-- ARGV: 1 lease ms, then for each lease: id, lease number, nonce.
-- Returns: { lost ids, cancelled ids }. A cancelled one is extended too, until it is settled.
local lease_ms = number(ARGV[1], 'lease')
open_drain()
local lost, cancelled = {}, {}
for i = 2, #ARGV, 3 do
  local id, no, nonce = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local r = get_record(id)
  if r and r.st == 'l' and r.no == no and r.nonce == nonce then
    call('ZADD', P .. 'l', text(now + lease_ms), id)
    if has_flag(r, 'c') then cancelled[#cancelled + 1] = id end
  else
    lost[#lost + 1] = id
  end
end
return { lost, cancelled }
