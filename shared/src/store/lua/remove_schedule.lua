-- Removes a schedule. Messages that it made keep the body they share.
-- ARGV: 1 id, 2 body key it must have ('' any), 3 definition it must have, as is_as_read has it.
-- Returns: 'removed' | 'none'.
local id, expected = ARGV[1], ARGV[2]
if not is_as_read(id, ARGV[3]) then return 'none' end
local s = get_schedule(id)
if expected ~= '' and (not s or s.body ~= expected) then return 'none' end
open_drain()
call('ZREM', P .. 'sc', id)
local was = call('HDEL', P .. 'sd', id)
call('HDEL', P .. 'sf', id)
if s then drop_body(s.body) end
return (s or was == 1) and 'removed' or 'none'
