-- Lanes: settings, rate window, in-flight counts, and wake_lane, which decides where a lane waits.
-- lane states in hs:{i}:st: R in the ring, V being visited, C at its cap, T timed by its rate,
-- P paused, F parked at the fairness threshold, H waiting for its head's host, U unreadable record.
local BOUNDLESS = 9007199254740991
local MOVED_MAX = 64

local function kind(lane) return string.sub(lane, 1, 1) end

-- cfg: cap|rate|period ms|paused|pinned cap|pinned rate|created ms|used ms
local settings_of = {}
local function parse_settings(packed)
  local cap, rate, period, paused, pin_cap, pin_rate, created, used
  if packed then
    cap, rate, period, paused, pin_cap, pin_rate, created, used =
      string.match(packed, '^(%d+)|(%d+)|(%d+)|([01])|([01])|([01])|(%d+)|(%d+)$')
  end
  return {
    cap = tonumber(cap or 0), rate = tonumber(rate or 0), period = tonumber(period or 0),
    paused = paused == '1', pin_cap = pin_cap == '1', pin_rate = pin_rate == '1',
    created = tonumber(created or 0), used = tonumber(used or 0), stored = cap ~= nil,
  }
end

local function settings(lane)
  local c = settings_of[lane]
  if c then return c end
  c = parse_settings(kind(lane) ~= 'h' and call('HGET', P .. 'cfg', lane))
  settings_of[lane] = c
  return c
end

-- Reads the settings of several lanes at once; none of them is a host lane.
local function read_settings(lanes)
  if #lanes == 0 then return end
  local packed = call('HMGET', P .. 'cfg', unpack(lanes))
  for i = 1, #lanes do
    settings_of[lanes[i]] = settings_of[lanes[i]] or parse_settings(packed[i])
  end
end

local function put_settings(lane, c)
  c.stored = true
  call('HSET', P .. 'cfg', lane, string.format('%.0f|%.0f|%.0f|%s|%s|%s|%.0f|%.0f', c.cap, c.rate,
    c.period, c.paused and '1' or '0', c.pin_cap and '1' or '0', c.pin_rate and '1' or '0',
    c.created, c.used))
end

local function cap_of(lane)
  local cap = settings(lane).cap
  if cap > 0 then return cap end
  return kind(lane) == 'q' and 1 or BOUNDLESS
end

local function waiting(lane) return call('LLEN', P .. 'ln:' .. lane) end

local function put_window(lane, w)
  call('HSET', P .. 'win', lane, string.format('%.0f|%.0f|%.0f', w.start, w.count, w.credit))
end

-- The rate window, turned if its period is over; false for a lane without a rate.
-- credit: messages at the head that were counted already, at publish or promotion.
local function window(lane)
  local c = settings(lane)
  if c.rate == 0 then return false end
  local packed = call('HGET', P .. 'win', lane)
  local start, count, credit = string.match(packed or '', '^(%d+)|(%d+)|(%d+)$')
  local w = { start = tonumber(start or now), count = tonumber(count or 0), credit = tonumber(credit or 0) }
  if w.start > now then
    -- The clock stepped back. Written down, or the window would start anew at every look.
    w.start = now
    put_window(lane, w)
  end
  if now >= w.start + c.period then
    w.start = now
    w.credit = math.min(w.credit, c.rate, waiting(lane))
    w.count = w.credit
  end
  return w
end

-- Counts a message at its arrival, before its push, while everything before it is counted.
local function admit(lane)
  local w = window(lane)
  if not w then return end
  local c = settings(lane)
  if not c.paused and w.credit == waiting(lane) and w.count < c.rate then
    w.count, w.credit = w.count + 1, w.credit + 1
  end
  put_window(lane, w)
end

local function in_flight(lane) return tonumber(call('HGET', P .. 'inf', lane) or 0) end

-- Moves a lane to where it belongs. Every script that changes a lane ends here for it.
local function wake_lane(lane, its_turn)
  local st = call('HGET', P .. 'st', lane)
  if st == 'R' or st == 'V' or (st == 'H' and not its_turn) then return end
  if st == 'T' then call('ZREM', P .. 'tm', lane) end
  if st == 'F' then call('ZREM', P .. 'fp', lane) end
  if waiting(lane) == 0 then
    if st then call('HDEL', P .. 'st', lane) end
    return
  end
  local c = settings(lane)
  local next_st = 'R'
  if c.paused then next_st = 'P'
  elseif in_flight(lane) >= cap_of(lane) then next_st = 'C'
  else
    local w = window(lane)
    if w and w.credit == 0 and w.count >= c.rate then
      next_st = 'T'
      local due = w.start + c.period
      local first = call('ZRANGE', P .. 'tm', 0, 0, 'WITHSCORES')
      if not first[2] or due < tonumber(first[2]) then wake() end
      call('ZADD', P .. 'tm', text(due), lane)
    end
  end
  call('HSET', P .. 'st', lane, next_st)
  if next_st == 'R' then
    call('RPUSH', P .. 'run', lane)
    wake()
  end
end

-- Of a queue the time of change is kept too: holding messages and callbacks are not in one place
-- where a recount could find them, so it must know that nothing moved while it looked.
local function slot(lane, change)
  if kind(lane) == 'q' then call('HSET', P .. 'ch', lane, text(now)) end
  if call('HINCRBY', P .. 'inf', lane, change) <= 0 then call('HDEL', P .. 'inf', lane) end
end

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
  if call('HINCRBY', P .. 'hi', host, -ended) <= 0 then call('HDEL', P .. 'hi', host) end
  for _ = 1, math.min(ended, call('LLEN', P .. 'hw:' .. host)) do pass_turn(host) end
end

-- Queues are exempt from fairness, so they do not count for their hosts.
local function host_slot(r, change)
  if kind(r.lane) == 'q' then return end
  if change < 0 then return free_host(r.host, -change) end
  call('HINCRBY', P .. 'hi', r.host, change)
end
