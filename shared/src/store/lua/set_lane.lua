-- Sets what an operator may set of a queue or flow key; '' leaves a field as it is. Calls in flight
-- are never interrupted.
-- ARGV: 1 lane, 2 cap, 3 rate, 4 period ms, 5 paused, 6 pinned cap, 7 pinned rate (5-7: 0|1),
--   8 restart the rate window (0|1).
-- Returns: 'ok'.
local lane = ARGV[1]
local c = settings(lane)
local function set(i, field, is_flag)
  if ARGV[i] == '' then return end
  if is_flag then c[field] = ARGV[i] == '1' else c[field] = number(ARGV[i], field) end
end
set(2, 'cap')
set(3, 'rate')
set(4, 'period')
set(5, 'paused', true)
set(6, 'pin_cap', true)
set(7, 'pin_rate', true)
open_drain()
if not c.stored then
  c.created = now
  if kind(lane) == 'q' and c.cap == 0 then c.cap = 1 end
end
c.used = now
put_settings(lane, c)
local w = window(lane)
if ARGV[8] == '1' and w then
  -- What was counted before stays admitted, and the new window begins with nothing.
  w.credit = math.min(w.credit, c.rate)
  w.start, w.count = now, 0
  put_window(lane, w)
end
wake_lane(lane)
return 'ok'
