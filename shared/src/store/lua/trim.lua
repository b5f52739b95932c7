-- Forgets a little of what has ended: delivered bodies, old records, dead letters past their age.
local DONE_BODIES_MAX = 10000
local GONE_MS = 15000

-- An entry of `done` or `gone`; one that cannot be read is as old as can be.
local function ended_entry(entry)
  local ended, id = string.match(entry, '^(%d+) (.+)$')
  return tonumber(ended or 0), id or ''
end

local BODY_KEY = '^1|%l|%d+|%d*|%d+|%d+|%d+|%l*|%d+|([^|]*)|[^|]*|[^|]*|[^|]*$'

-- Takes entries off the head of a list while `may_go(time, position)`. Returns their ids and times.
local function take(key, limit, may_go)
  local ids, times = {}, {}
  local first = call('LINDEX', P .. key, 0)
  if not first or not may_go((ended_entry(first)), 1) then return ids, times end
  local entries = call('LRANGE', P .. key, 0, limit - 1)
  for i = 1, #entries do
    local ended, id = ended_entry(entries[i])
    if not may_go(ended, i) then break end
    ids[i], times[i] = id, ended
  end
  if #ids > 0 then call('LPOP', P .. key, #ids) end
  return ids, times
end

-- A delivered message loses its body, and its record too or a while later. Every message that is
-- ever delivered comes by here, so what can be done for all of them at once is.
local function forget_delivered(limit, done_ms)
  local over = call('LLEN', P .. 'done') - DONE_BODIES_MAX
  local function is_old(ended) return ended + done_ms <= now end
  local ids, times = take('done', limit, function(ended, i) return is_old(ended) or i <= over end)
  if #ids == 0 then return end
  local records = call('HMGET', P .. 'm', unpack(ids))
  local are_shared = call('EXISTS', P .. 'rc') == 1
  local bodies, old, gone = {}, {}, {}
  for i = 1, #ids do
    local ref = records[i] and string.match(records[i], BODY_KEY)
    if ref then
      if are_shared then
        drop_envelope(ids[i], { ref = ref })
      else
        bodies[#bodies + 1] = P .. 'b:' .. ids[i]
        if ref ~= '' then bodies[#bodies + 1] = P .. 'b:' .. ref end
      end
      if is_old(times[i]) then old[#old + 1] = ids[i]
      else gone[#gone + 1] = text(now) .. ' ' .. ids[i] end
    end
  end
  if #bodies > 0 then call('UNLINK', unpack(bodies)) end
  if #old > 0 then call('HDEL', P .. 'm', unpack(old)) end
  if #gone > 0 then call('RPUSH', P .. 'gone', unpack(gone)) end
end

-- Returns how many dead letters went, and whether a limit was reached.
local function trim(limit, done_ms, dead_ms)
  forget_delivered(limit, done_ms)
  local gone = take('gone', limit, function(ended) return ended + GONE_MS <= now end)
  if #gone > 0 then call('HDEL', P .. 'm', unpack(gone)) end
  local old = call('ZRANGEBYSCORE', P .. 'x', '-inf', text(now - dead_ms), 'LIMIT', 0, limit)
  for i = 1, #old do
    local r = get_record(old[i])
    call('ZREM', P .. 'x', old[i])
    call('UNLINK', P .. 'r:' .. old[i])
    if r then drop_envelope(old[i], r) end
    call('HDEL', P .. 'm', old[i])
  end
  return #old, #gone == limit
end
