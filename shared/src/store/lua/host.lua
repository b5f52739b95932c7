-- Hosts: calls in flight to each, and the flow lanes that wait for one.
local function host_in_flight(host) return tonumber(call('HGET', P .. 'hi', host) or 0) end

-- Gives the turn to the next lane that waits for this host; one that cannot run passes it on.
-- `expected`: lanes are known to wait, so an empty list means that the index is stale.
local function pass_turn(host, expected)
  local key, moved = P .. 'hw:' .. host, 0
  while moved < MOVED_MAX do
    local lane = call('LPOP', key)
    if not lane then
      if moved > 0 or expected then call('ZREM', P .. 'hq', host) end
      return
    end
    moved = moved + 1
    if call('HGET', P .. 'st', lane) == 'H' then
      call('HDEL', P .. 'st', lane)
      wake_lane(lane, true)
    end
    if call('HGET', P .. 'st', lane) == 'R' then break end
  end
  if call('LLEN', key) == 0 then call('ZREM', P .. 'hq', host)
  else call('ZADD', P .. 'hq', text(host_in_flight(host)), host) end
end

-- So many calls to a host have ended, and as many lanes that wait for it may have a turn.
local function free_host(host, ended)
  if call('HINCRBY', P .. 'hi', host, text(-ended)) <= 0 then call('HDEL', P .. 'hi', host) end
  for _ = 1, math.min(ended, call('LLEN', P .. 'hw:' .. host)) do pass_turn(host) end
end

-- Queues are exempt from fairness, so they do not count for their hosts.
local function host_slot(r, change)
  if kind(r.lane) == 'q' then return end
  if change < 0 then return free_host(r.host, -change) end
  call('HINCRBY', P .. 'hi', r.host, text(change))
end
