-- redrive: a dead letter becomes a new message, ready at the tail of its lane.
-- ARGV: 1 dead id, 2 new id, 3 envelope that names the dead one's body (used if others use it too),
--   4 event.
-- Returns: 'accepted' | 'none' (not a dead letter) | 'gone' (its envelope is missing).
-- A repeat with the same new id is accepted.
local old, new = ARGV[1], ARGV[2]
if call('HEXISTS', P .. 'm', new) == 1 then return 'accepted' end
local r = get_record(old)
if not r or r.st ~= 'x' or not call('ZSCORE', P .. 'x', old) then return 'none' end
if call('EXISTS', P .. 'b:' .. old) == 0 then return 'gone' end
open_drain()
local ref = r.ref
if tonumber(call('HGET', P .. 'rc', old) or 1) > 1 then
  ref = old
  call('SET', P .. 'b:' .. new, ARGV[3])
else
  call('HDEL', P .. 'rc', old)
  call('RENAME', P .. 'b:' .. old, P .. 'b:' .. new)
end
call('ZREM', P .. 'x', old)
call('UNLINK', P .. 'r:' .. old)
enter(new, new_record(r.lane, r.host, r.retries, r.size, ref, ''), 0)
r.st, r.ref = 'g', ''
put_record(old, r)
mark_gone(old)
event(new, 'n', ARGV[4])
log_events()
return 'accepted'
