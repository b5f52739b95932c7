-- release: hands leases back. An unstarted one returns to the head and nothing is counted; a
-- started one is a loss.
-- ARGV: 1 lease ms, then for each lease: id, lease number, nonce, started (0|1).
-- Returns: how many were released. A lease that is no longer held is left alone.
local lease_ms = number(ARGV[1], 'lease')
open_drain()
local released = 0
for i = #ARGV - 3, 2, -4 do
  local id, no, nonce = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local r = get_record(id)
  if r and r.st == 'l' and r.no == no and r.nonce == nonce then
    give_back(id, r, ARGV[i + 3] == '1', lease_ms)
    event(id, r.st == 'c' and 'c' or 'b', '')
    released = released + 1
  end
end
log_events()
return released
