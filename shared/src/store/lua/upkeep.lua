-- What is done now and then and not at every exchange: leases that ended without a settlement come
-- back, and a little of what has ended is forgotten. It makes its functions only when it is called.
local OVERDUE = 4
local CLAMP_SLACK_MS = 2000
local DONE_BODIES_MAX = 10000
local GONE_MS = 15000

-- Looks at up to `limit` leases, and forgets up to `limit` of each kind. Without `may_recover` only
-- leases overdue by OVERDUE lease times come back: the caller has not been in touch long enough to
-- judge the others. Returns how many leases came back, how many dead letters went, and whether a
-- limit was reached.
local function upkeep(limit, may_recover, lease_ms, done_ms, dead_ms)
  local function leases(from, to)
    return call('ZRANGEBYSCORE', P .. 'l', from, to, 'LIMIT', '0', text(limit))
  end

  local function recover()
    local ids = leases('-inf', text(may_recover and now or now - OVERDUE * lease_ms))
    for i = #ids, 1, -1 do
      local r = get_record(ids[i])
      if r and r.st == 'l' then
        give_back(ids[i], r, true, lease_ms)
        event(ids[i], r.st == 'c' and 'c' or 'v', '')
      else
        call('ZREM', P .. 'l', ids[i])
      end
    end
    return #ids
  end

  -- After a clock step back, leases must not lie further ahead than a lease can.
  local function clamp()
    local ids = leases('(' .. text(now + lease_ms + CLAMP_SLACK_MS), '+inf')
    for i = 1, #ids do call('ZADD', P .. 'l', text(now + lease_ms), ids[i]) end
  end

  -- The time of an entry and what follows it. One without a time is as old as can be.
  local function ended_entry(entry)
    local blank = string.find(entry, ' ', 1, true) or 0
    return tonumber(string.sub(entry, 1, blank - 1)) or 0, string.sub(entry, blank + 1)
  end

  -- Takes entries off the head of a list while `may_go(time, position)`. Returns what follows their
  -- times, and those.
  local function take(key, may_go)
    local taken, times = {}, {}
    local first = call('LINDEX', P .. key, '0')
    if not first or not may_go((ended_entry(first)), 1) then return taken, times end
    local entries = call('LRANGE', P .. key, '0', text(limit - 1))
    for i = 1, #entries do
      local ended, rest = ended_entry(entries[i])
      if not may_go(ended, i) then break end
      taken[i], times[i] = rest, ended
    end
    if #taken > 0 then call('LPOP', P .. key, text(#taken)) end
    return taken, times
  end

  -- A delivered message loses its body, and its record too or a while later. Every message that is
  -- ever delivered comes by here, so what can be done for all of them at once is.
  local function forget_delivered()
    local over = call('LLEN', P .. 'done') - DONE_BODIES_MAX
    local function is_old(ended) return ended + done_ms <= now end
    local taken, times = take('done', function(ended, i) return i <= over or is_old(ended) end)
    if #taken == 0 then return 0 end
    local are_shared = call('EXISTS', P .. 'rc') == 1
    local bodies, old, gone = {}, {}, {}
    for i = 1, #taken do
      local id, ref = taken[i], ''
      local blank = string.find(id, ' ', 1, true)
      if blank then id, ref = string.sub(id, 1, blank - 1), string.sub(id, blank + 1) end
      if are_shared then
        drop_envelope(id, { ref = ref })
      else
        bodies[#bodies + 1] = P .. 'b:' .. id
        if ref ~= '' then bodies[#bodies + 1] = P .. 'b:' .. ref end
      end
      if is_old(times[i]) then old[#old + 1] = id else gone[#gone + 1] = NOW .. ' ' .. id end
    end
    if #bodies > 0 then call('UNLINK', unpack(bodies)) end
    if #old > 0 then call('HDEL', P .. 'm', unpack(old)) end
    if #gone > 0 then call('RPUSH', P .. 'gone', unpack(gone)) end
    return #taken
  end

  local function forget_gone()
    local gone = take('gone', function(ended) return ended + GONE_MS <= now end)
    if #gone > 0 then call('HDEL', P .. 'm', unpack(gone)) end
    return #gone
  end

  local function forget_dead()
    local until_ms = text(now - dead_ms)
    local old = call('ZRANGEBYSCORE', P .. 'x', '-inf', until_ms, 'LIMIT', '0', text(limit))
    for i = 1, #old do
      local r = get_record(old[i])
      call('ZREM', P .. 'x', old[i])
      call('UNLINK', P .. 'r:' .. old[i])
      if r then drop_envelope(old[i], r) end
      call('HDEL', P .. 'm', old[i])
    end
    return #old
  end

  local recovered = recover()
  clamp()
  local delivered, gone, dead = forget_delivered(), forget_gone(), forget_dead()
  return recovered, dead, math.max(recovered, delivered, gone, dead) == limit
end
