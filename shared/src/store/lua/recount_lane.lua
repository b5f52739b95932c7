-- Recounts what a lane has in flight: all its leases, and for a queue those of the given ids that
-- hold a slot in it otherwise (holding messages, and callbacks that hold for it).
-- ARGV: 1 lane, 2 when the caller began to look for candidates (ms), then candidate ids.
-- Returns: { before, after }; alike when nothing was wrong, when a queue has moved since the caller
--   began to look, or when there are too many leases to count here.
local LEASES_MAX = 10000
local lane, since = ARGV[1], number(ARGV[2], 'since')
local before = in_flight(lane)
local moved = tonumber(call('HGET', P .. 'ch', lane) or 0)
if moved >= since or call('ZCARD', P .. 'l') > LEASES_MAX then return { before, before } end
local count = 0
local leased = call('ZRANGE', P .. 'l', 0, -1)
for i = 1, #leased do
  local r = get_record(leased[i])
  if r and r.lane == lane and r.st == 'l' then count = count + 1 end
  if r and r.holds == lane then count = count + 1 end
end
for i = 3, #ARGV do
  local r = get_record(ARGV[i])
  if r and r.lane == lane and r.st == 'h' then count = count + 1 end
  if r and r.holds == lane and string.find(r.st, '^[wdh]$') then count = count + 1 end
end
if count == before then return { before, before } end
open_drain()
if count > 0 then call('HSET', P .. 'inf', lane, text(count)) else call('HDEL', P .. 'inf', lane) end
wake_lane(lane)
return { before, count }
