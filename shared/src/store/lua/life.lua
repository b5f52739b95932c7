-- A message's life once it has entered, its end; and the bodies that several messages may share.
local LOST_MAX = 8

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
local function mark_gone(id) call('RPUSH', P .. 'gone', NOW .. ' ' .. id) end

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

-- The last word is there only if it shares a body.
local function done_entry(id, ref) return NOW .. ' ' .. id .. (ref ~= '' and ' ' .. ref or '') end

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
    call('RPUSH', P .. 'done', done_entry(id, r.ref))
  elseif state == 'x' then
    if response ~= '' then call('SET', P .. 'r:' .. id, response) end
    call('ZADD', P .. 'x', NOW, id)
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
