-- Cancels up to n messages of deleted queues. ARGV: 1 n. Returns: 0 when nothing is left, else how
-- many entries were taken, at least 1.
local n = number(ARGV[1], 'n')
open_drain()
local name = call('LINDEX', P .. 'trash', 0)
if not name then return 0 end
local ids = call('LPOP', P .. name, n) or {}
for i = 1, #ids do
  local r = get_record(ids[i])
  if r and r.st == 'w' then
    finish(ids[i], r, 'c', '', {})
    event(ids[i], 'c', '')
  end
end
if call('EXISTS', P .. name) == 0 then call('LPOP', P .. 'trash') end
log_events()
return math.max(#ids, 1)
