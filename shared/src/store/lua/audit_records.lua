-- Repairs half states: each record against the place its state names, and its lane's own place.
-- ARGV: 1 lease ms, then ids. Returns: { repaired, unreadable }. O(ids): each lane is looked
-- at once, and a search goes no further than SEARCH_MAX; in a longer list nothing is repaired.
local SEARCH_MAX = 1000
local lease_ms = number(ARGV[1], 'lease')
open_drain()
local repaired, broken = 0, 0

local function missing_from(list, member)
  return not call('LPOS', list, member, 'MAXLEN', SEARCH_MAX) and call('LLEN', list) < SEARCH_MAX
end

-- Messages of a deleted queue wait in the trash for the sweeper, not in a lane.
local has_trash = call('LLEN', P .. 'trash') > 0
local function is_unlisted(id, lane)
  if has_trash and kind(lane) == 'q' then return false end
  return missing_from(P .. 'ln:' .. lane, id)
end

local audited = {}
local function audit_lane(lane)
  if audited[lane] then return end
  audited[lane] = true
  local st = call('HGET', P .. 'st', lane)
  if waiting(lane) == 0 then return end
  -- V: a visit of an earlier version did not end.
  local misplaced = not st or st == 'U' or st == 'V'
    or (st == 'R' and missing_from(P .. 'run', lane))
    or (st == 'T' and not call('ZSCORE', P .. 'tm', lane))
    or (st == 'F' and not call('ZSCORE', P .. 'fp', lane))
    or (st == 'C' and in_flight(lane) < cap_of(lane))
    or (st == 'P' and not settings(lane).paused)
  if st == 'H' then
    local head = get_record(call('LINDEX', P .. 'ln:' .. lane, 0))
    misplaced = not head or missing_from(P .. 'hw:' .. head.host, lane)
  end
  if misplaced then
    if st == 'R' or st == 'U' or st == 'V' or st == 'H' then call('HDEL', P .. 'st', lane) end
    wake_lane(lane, true)
    repaired = repaired + 1
  end
end

for i = 2, #ARGV do
  local id = ARGV[i]
  local packed = call('HGET', P .. 'm', id)
  local r = packed and parse_record(packed)
  if packed and not r then
    broken = broken + 1
    put_record(id, { st = 'x', no = 0, nonce = '', failed = 0, lost = 0, retries = 0, flags = '',
      size = 0, ref = '', lane = '', host = '', holds = '' })
    call('ZADD', P .. 'x', 'NX', NOW, id)
  elseif r then
    local misplaced = false
    if r.st == 'l' and not call('ZSCORE', P .. 'l', id) then
      misplaced = true
      call('ZADD', P .. 'l', text(now + lease_ms), id)
    elseif (r.st == 'd' or r.st == 'h') and not call('ZSCORE', P .. 'd', id) then
      misplaced = true
      delay(id, now)
    elseif r.st == 'x' and not call('ZSCORE', P .. 'x', id) then
      misplaced = true
      call('ZADD', P .. 'x', NOW, id)
    elseif r.st == 'w' and is_unlisted(id, r.lane) then
      misplaced = true
      call('RPUSH', P .. 'ln:' .. r.lane, id)
    end
    if misplaced then repaired = repaired + 1 end
    if r.lane ~= '' then audit_lane(r.lane) end
  end
end
return { repaired, broken }
