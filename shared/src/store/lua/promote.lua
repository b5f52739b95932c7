-- due -> ready: at most `limit` messages. A holding one goes back to the head of its queue and
-- frees its slot; head pushes run from the latest to the earliest, so that order is kept.
-- Returns how many, and when the next one is due (-1 none).
local function promote(limit)
  local due = first_due('d')
  if due < 0 or due > now then return 0, due end
  local ids = call('ZRANGEBYSCORE', P .. 'd', '-inf', NOW, 'LIMIT', '0', text(limit))
  local heads = {}
  for i = 1, #ids do
    local id = ids[i]
    call('ZREM', P .. 'd', id)
    local r = get_record(id)
    if r and r.st == 'h' then
      heads[#heads + 1] = { id, r }
    elseif r and r.st == 'd' then
      push(id, r, false)
      wake_lane(r.lane)
    end
  end
  for i = #heads, 1, -1 do
    local id, r = heads[i][1], heads[i][2]
    slot(r.lane, -1)
    push(id, r, true)
    wake_lane(r.lane)
  end
  return #ids, first_due('d')
end

-- Lanes whose rate window lets them run again, and lanes a clock step left beyond their period.
local function wake_timed(limit)
  local lanes = call('ZRANGEBYSCORE', P .. 'tm', '-inf', NOW, 'LIMIT', '0', text(limit))
  for i = 1, #lanes do wake_lane(lanes[i]) end
  local last = call('ZREVRANGE', P .. 'tm', '0', text(limit - 1), 'WITHSCORES')
  local timed = {}
  for i = 1, #last, 2 do timed[#timed + 1] = last[i] end
  -- In one command: this is all that waiting for a rate costs an idle worker.
  read_settings(timed)
  for i = 1, #last, 2 do
    if tonumber(last[i + 1]) > now + settings(last[i]).period then wake_lane(last[i]) end
  end
end
