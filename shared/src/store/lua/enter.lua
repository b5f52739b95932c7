-- How a message enters: into its lane, or into the due set until its time.
-- Puts id into the due set and wakes a worker if it is now the earliest.
local function delay(id, due)
  local first = call('ZRANGE', P .. 'd', '0', '0', 'WITHSCORES')
  if not first[2] or due < tonumber(first[2]) then wake() end
  call('ZADD', P .. 'd', text(due), id)
end

-- Puts a message into its lane. At the head nothing is counted: it was admitted before.
local function push(id, r, at_head)
  r.st = 'w'
  if at_head then
    call('LPUSH', P .. 'ln:' .. r.lane, id)
  else
    admit(r.lane)
    call('RPUSH', P .. 'ln:' .. r.lane, id)
  end
  put_record(id, r)
end

local function enter(id, r, due)
  if r.holds ~= '' then slot(r.holds, 1) end
  if due > now then
    r.st = 'd'
    put_record(id, r)
    delay(id, due)
  else
    push(id, r, false)
    wake_lane(r.lane)
  end
end
