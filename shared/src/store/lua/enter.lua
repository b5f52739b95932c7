-- How a message enters: into its lane, or into the due set until its time.
-- Puts id into the due set and wakes a worker if it is now the earliest.
local function delay(id, due)
  local first = first_due('d')
  if first < 0 or due < first then wake_sooner() end
  call('ZADD', P .. 'd', text(due), id)
end

-- Puts a message into its lane and says how many wait there now. At the head nothing is counted: it
-- was admitted before.
local function push(id, r, at_head)
  r.st = 'w'
  put_record(id, r)
  if at_head then return call('LPUSH', P .. 'ln:' .. r.lane, id) end
  admit(r.lane)
  return call('RPUSH', P .. 'ln:' .. r.lane, id)
end

local function enter(id, r, due)
  if r.holds ~= '' then slot(r.holds, 1) end
  if due > now then
    r.st = 'd'
    put_record(id, r)
    delay(id, due)
  else
    wake_lane(r.lane, false, push(id, r, false))
  end
end
