-- Shared by every script: the shard's key prefix, the time, numbers as text, the packed record.
-- KEYS[1] is always hs:{i}:nil. It never exists; declaring it makes a moving slot refuse the whole
-- script instead of stopping it in the middle. All other keys are built from its hash tag.
local P = string.sub(KEYS[1], 1, -4)
local call = redis.call

local TIME = call('TIME')
local now = tonumber(TIME[1]) * 1000 + math.floor(tonumber(TIME[2]) / 1000)

-- Numbers are whole and not far above EXACT_MAX, so this says all of their digits. Commands take
-- their numbers as text too: the host writes a number out as slowly as if it had a fraction.
local function text(n) return string.format('%d', n) end
local NOW = text(now)

-- A missing or malformed number raises, so arguments are read before the first write. What is above
-- EXACT_MAX is as good as boundless.
local EXACT_MAX = 9007199254740992
local function number(s, name)
  local n = tonumber(s)
  if not n or n % 1 ~= 0 then error('argument ' .. name .. ' is not an integer') end
  return n < EXACT_MAX and n or EXACT_MAX
end

-- Draining scripts write this first: it is allowed when memory is full, and lets later writes pass.
local function open_drain() call('HDEL', KEYS[1], 'x') end

-- record: 1|state|lease number|nonce|failed|lost|retries|flags|size|body key|lane|host|holds
-- states: w waiting, d delayed, h holding, l leased, x dead, k delivered, c cancelled, g redriven
-- flags: c cancel requested, d done (a stale success was seen)
local RECORD = '^1|(%l)|(%d+)|(%d*)|(%d+)|(%d+)|(%d+)|(%l*)|(%d+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$'

local function parse_record(packed)
  local st, no, nonce, failed, lost, retries, flags, size, ref, lane, host, holds =
    string.match(packed, RECORD)
  if not st then return false end
  return {
    st = st, no = tonumber(no), nonce = nonce, failed = tonumber(failed), lost = tonumber(lost),
    retries = tonumber(retries), flags = flags, size = tonumber(size), ref = ref, lane = lane,
    host = host, holds = holds,
  }
end

local function new_record(lane, host, retries, size, ref, holds)
  return {
    st = 'w', no = 0, nonce = '', failed = 0, lost = 0, retries = retries, flags = '',
    size = size, ref = ref, lane = lane, host = host, holds = holds,
  }
end

local function get_record(id)
  local packed = call('HGET', P .. 'm', id)
  return packed and parse_record(packed)
end

local function pack_record(r)
  return string.format('1|%s|%d|%s|%d|%d|%d|%s|%d|%s|%s|%s|%s', r.st, r.no, r.nonce,
    r.failed, r.lost, r.retries, r.flags, r.size, r.ref, r.lane, r.host, r.holds)
end

local function put_record(id, r) call('HSET', P .. 'm', id, pack_record(r)) end

local function has_flag(r, flag) return string.find(r.flags, flag, 1, true) ~= nil end

-- One wake-up token at most; one push a script is enough. `sooner`: something is due sooner than
-- anything before it.
local woken, sooner = false, false
local function wake()
  if woken then return end
  woken = true
  if call('LLEN', P .. 'w') == 0 then call('RPUSH', P .. 'w', '1') end
end
local function wake_sooner()
  sooner = true
  wake()
end

-- The events of this run, written as one packed entry by log_events.
local events = {}
local function event(id, code, blob)
  events[#events + 1] = id .. '|' .. code .. '|' .. text(#blob) .. '|' .. blob
end
local EVENTS_MAX = 20000
local function log_events()
  if #events == 0 then return end
  call('XADD', P .. 'log', 'MAXLEN', '~', text(EVENTS_MAX), '*', 'e', table.concat(events))
end
