-- heartbeat: says that a worker lives, and counts the slots of all that do.
-- ARGV: 1 worker, 2 its slots (0: it leaves), 3 how long a heartbeat counts, ms.
-- Returns: the slots of all live workers. O(workers).
local WORKERS_MAX = 10000
local worker, slots, life_ms = ARGV[1], number(ARGV[2], 'slots'), number(ARGV[3], 'life')
local key, me = P .. 'hb', text(slots) .. ' ' .. worker
open_drain()
call('ZREMRANGEBYSCORE', key, '-inf', text(now - life_ms))
-- Left behind by a clock that was ahead.
call('ZREMRANGEBYSCORE', key, '(' .. text(now + life_ms), '+inf')
if slots > 0 then call('ZADD', key, NOW, me) end
local live, total = call('ZRANGE', key, 0, WORKERS_MAX - 1), 0
for i = 1, #live do
  local n, name = string.match(live[i], '^(%d+) (.*)$')
  if name == worker and live[i] ~= me then call('ZREM', key, live[i])
  elseif n then total = total + tonumber(n) end
end
return total
