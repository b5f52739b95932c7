-- State of a schedule in hs:{i}:sf: 1|body key|paused|last fired ms|ids of that firing|error
local SCHEDULE = '^1|([^|]*)|([01])|(%d+)|([^|]*)|(.*)$'

local function get_schedule(id)
  local body, paused, fired, ids, fault =
    string.match(call('HGET', P .. 'sf', id) or '', SCHEDULE)
  if not body then return false end
  return { body = body, paused = paused == '1', fired = tonumber(fired), ids = ids, fault = fault }
end

local function set_schedule(id, s)
  call('HSET', P .. 'sf', id, table.concat({
    '1', s.body, s.paused and '1' or '0', text(s.fired), s.ids, s.fault,
  }, '|'))
end

-- Whether the definition is still the one that was read: '=' and its bytes, '=' alone when there was
-- none; '' is content with any.
local function is_as_read(id, read)
  return read == '' or read == '=' .. (call('HGET', P .. 'sd', id) or '')
end

-- Only what this pipeline has just set: a live body has no expiry.
local function drop_guarded(key)
  if call('PTTL', P .. 'b:' .. key) > 0 then call('UNLINK', P .. 'b:' .. key) end
end
