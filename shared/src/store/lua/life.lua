-- A message's life: entering, waiting, ending; and the bodies that several messages may share.
local LOST_MAX = 8

-- Puts id into the due set and wakes a worker if it is now the earliest.
local function delay(id, due)
  local first = call('ZRANGE', P .. 'd', 0, 0, 'WITHSCORES')
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

local function share_body(key)
  call('HSET', P .. 'rc', key, text(tonumber(call('HGET', P .. 'rc', key) or 1) + 1))
end

local function drop_body(key)
  local users = tonumber(call('HGET', P .. 'rc', key) or 1) - 1
  if users > 0 then
    call('HSET', P .. 'rc', key, text(users))
  else
    call('HDEL', P .. 'rc', key)
    call('UNLINK', P .. 'b:' .. key)
  end
end

local function drop_envelope(id, r)
  drop_body(id)
  if r.ref ~= '' then drop_body(r.ref) end
end

-- Keeps the record a while after the body has gone, so that a late repeat still finds the id.
local function mark_gone(id) call('RPUSH', P .. 'gone', text(now) .. ' ' .. id) end

-- children: { id, envelope, ref, lane, host, retries, size, delay }; an existing one is skipped.
local function enqueue_children(r, children)
  for i = 1, #children do
    local c = children[i]
    if call('HEXISTS', P .. 'm', c.id) == 0 then
      call('SET', P .. 'b:' .. c.id, c.envelope)
      if c.ref ~= '' then share_body(c.ref) end
      local holds = kind(r.lane) == 'q' and r.lane or r.holds
      enter(c.id, new_record(c.lane, c.host, c.retries, c.size, c.ref, holds), now + c.delay)
      event(c.id, 'n', c.event)
    end
  end
end

-- Ends a message. state: k delivered, x dead, c cancelled. Children enter before the slot goes.
local function finish(id, r, state, response, children)
  local was, held = r.st, r.holds
  if was == 'l' then call('ZREM', P .. 'l', id)
  elseif was == 'd' or was == 'h' then call('ZREM', P .. 'd', id) end
  enqueue_children(r, children)
  if was == 'l' or was == 'h' then slot(r.lane, -1) end
  if held ~= '' then slot(held, -1) end
  r.st, r.nonce, r.holds = state, '', ''
  put_record(id, r)
  if state == 'k' then
    call('RPUSH', P .. 'done', text(now) .. ' ' .. id)
  elseif state == 'x' then
    if response ~= '' then call('SET', P .. 'r:' .. id, response) end
    call('ZADD', P .. 'x', text(now), id)
  else
    drop_envelope(id, r)
    mark_gone(id)
  end
  if was == 'l' then host_slot(r, -1) end
  wake_lane(r.lane)
  if held ~= '' then wake_lane(held) end
end

-- A lease ends without a settlement: expired, handed back, or its worker died. From the second loss
-- on the message pauses. At LOST_MAX it goes to the head at once, to be settled dead; if even that
-- is lost, it pauses again, so that a message which kills its readers never blocks its lane.
local function give_back(id, r, is_loss, lease_ms)
  if has_flag(r, 'd') then return finish(id, r, 'k', '', {}) end
  if has_flag(r, 'c') then return finish(id, r, 'c', '', {}) end
  if is_loss then r.lost = r.lost + 1 end
  call('ZREM', P .. 'l', id)
  r.nonce = ''
  if is_loss and r.lost >= 2 and r.lost ~= LOST_MAX then
    local due = now + lease_ms * 2 ^ math.min(r.lost - 1, LOST_MAX - 1)
    if kind(r.lane) == 'q' then
      r.st = 'h'
      put_record(id, r)
      return delay(id, due)
    end
    r.st = 'd'
    put_record(id, r)
    delay(id, due)
    slot(r.lane, -1)
    host_slot(r, -1)
  else
    slot(r.lane, -1)
    local w = window(r.lane)
    if w then
      w.credit = w.credit + 1
      put_window(r.lane, w)
    end
    push(id, r, true)
    host_slot(r, -1)
  end
  wake_lane(r.lane)
end
