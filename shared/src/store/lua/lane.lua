-- Lanes: settings, rate window, in-flight counts, and wake_lane, which decides where a lane waits.
-- lane states in hs:{i}:st: R in the ring or being visited, C at its cap, T timed by its rate,
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
  call('HSET', P .. 'cfg', lane, string.format('%d|%d|%d|%s|%s|%s|%d|%d', c.cap, c.rate,
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
  call('HSET', P .. 'win', lane, string.format('%d|%d|%d', w.start, w.count, w.credit))
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

-- The earliest time in a set of due times; -1 when it is empty.
local function first_due(set)
  local first = call('ZRANGE', P .. set, '0', '0', 'WITHSCORES')
  return first[2] and tonumber(first[2]) or -1
end

-- Lanes in the ring, as the last push into it or pop from it left them.
local ring = 0

-- Puts a lane that is in no place where it belongs. `st`: its state as it is written, if any;
-- `count`: how many wait in it, if that is known.
local function place_lane(lane, st, count)
  if (count or waiting(lane)) == 0 then
    if st then call('HDEL', P .. 'st', lane) end
    return
  end
  local c, cap = settings(lane), cap_of(lane)
  local next_st = 'R'
  if c.paused then next_st = 'P'
  elseif cap < BOUNDLESS and in_flight(lane) >= cap then next_st = 'C'
  else
    local w = window(lane)
    if w and w.credit == 0 and w.count >= c.rate then
      next_st = 'T'
      local due, first = w.start + c.period, first_due('tm')
      if first < 0 or due < first then wake_sooner() end
      call('ZADD', P .. 'tm', text(due), lane)
    end
  end
  if next_st ~= st then call('HSET', P .. 'st', lane, next_st) end
  if next_st == 'R' then
    ring = call('RPUSH', P .. 'run', lane)
    wake()
  end
end

-- Moves a lane to where it belongs. Every script that changes a lane ends here for it. One that is
-- being visited is still called runnable, and moved when the visit ends. `count` as for place_lane.
local function wake_lane(lane, its_turn, count)
  local st = call('HGET', P .. 'st', lane)
  if st == 'R' or (st == 'H' and not its_turn) then return end
  if st == 'T' then call('ZREM', P .. 'tm', lane) end
  if st == 'F' then call('ZREM', P .. 'fp', lane) end
  place_lane(lane, st, count)
end

-- Of a queue the time of change is kept too: holding messages and callbacks are not in one place
-- where a recount could find them, so it must know that nothing moved while it looked.
local function slot(lane, change)
  if kind(lane) == 'q' then call('HSET', P .. 'ch', lane, NOW) end
  if call('HINCRBY', P .. 'inf', lane, text(change)) <= 0 then call('HDEL', P .. 'inf', lane) end
end
