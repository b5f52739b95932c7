-- Forgets a little of what has ended: delivered bodies, old records, dead letters past their age.
local DONE_BODIES_MAX = 10000
local GONE_MS = 15000

-- An entry of `done` or `gone`; one that cannot be read is as old as can be.
local function ended_entry(entry)
  local ended, id = string.match(entry, '^(%d+) (.+)$')
  return tonumber(ended or 0), id or ''
end

-- Returns how many dead letters went, and whether a limit was reached.
local function trim(limit, done_ms, dead_ms)
  local is_behind = false
  local over = call('LLEN', P .. 'done') - DONE_BODIES_MAX
  for i = 1, limit do
    local first = call('LINDEX', P .. 'done', 0)
    if not first then break end
    local ended, id = ended_entry(first)
    local is_old = ended + done_ms <= now
    if not is_old and i > over then break end
    call('LPOP', P .. 'done')
    local r = get_record(id)
    if r then
      drop_envelope(id, r)
      if is_old then call('HDEL', P .. 'm', id) else mark_gone(id) end
    end
  end
  for i = 1, limit do
    local first = call('LINDEX', P .. 'gone', 0)
    if not first then break end
    local ended, id = ended_entry(first)
    if ended + GONE_MS > now then break end
    call('LPOP', P .. 'gone')
    call('HDEL', P .. 'm', id)
    is_behind = i == limit
  end
  local old = call('ZRANGEBYSCORE', P .. 'x', '-inf', text(now - dead_ms), 'LIMIT', 0, limit)
  for i = 1, #old do
    local r = get_record(old[i])
    call('ZREM', P .. 'x', old[i])
    call('UNLINK', P .. 'r:' .. old[i])
    if r then drop_envelope(old[i], r) end
    call('HDEL', P .. 'm', old[i])
  end
  return #old, is_behind
end
