-- redrive: a dead letter becomes a new message at the tail of its lane.
-- ARGV: 1 dead id, 2 new id, 3 envelope of the new one, which names the dead one's body (used if
--   others use it too, or if it is changed), 4 event, 5 changed (0|1), and if so 6 the body key that
--   its envelope names ('' = none), 7 retries, 8 due ms (0 = now), 9 delay ms (0 = none; wins over
--   due).
-- Returns: 'accepted' | 'none' (not a dead letter) | 'gone' (its envelope is missing).
-- A repeat with the same new id is accepted.
local old, new, is_changed = ARGV[1], ARGV[2], ARGV[5] == '1'
local due, wait = 0, 0
if is_changed then due, wait = number(ARGV[8], 'due'), number(ARGV[9], 'delay') end
local retries = is_changed and number(ARGV[7], 'retries')
if call('HEXISTS', P .. 'm', new) == 1 then return 'accepted' end
local r = get_record(old)
if not r or r.st ~= 'x' or not call('ZSCORE', P .. 'x', old) then return 'none' end
if call('EXISTS', P .. 'b:' .. old) == 0 then return 'gone' end
open_drain()
local ref = r.ref
if is_changed then
  call('SET', P .. 'b:' .. new, ARGV[3])
  ref = ARGV[6]
  if ref ~= old then drop_body(old) end
elseif tonumber(call('HGET', P .. 'rc', old) or 1) > 1 then
  ref = old
  call('SET', P .. 'b:' .. new, ARGV[3])
else
  call('HDEL', P .. 'rc', old)
  call('RENAME', P .. 'b:' .. old, P .. 'b:' .. new)
end
call('ZREM', P .. 'x', old)
call('UNLINK', P .. 'r:' .. old)
-- Its queue may have been deleted meanwhile.
if kind(r.lane) == 'q' then touch_lane(r.lane, 0, 0, 0) end
enter(new, new_record(r.lane, r.host, retries or r.retries, r.size, ref, ''), wait > 0 and now + wait or due)
r.st, r.ref = 'g', ''
put_record(old, r)
mark_gone(old)
event(new, 'n', ARGV[4])
log_events()
return 'accepted'
