-- Pauses a schedule: it is due at no time until it is resumed.
-- ARGV: 1 id, 2 definition it must have, as is_as_read has it.
-- Returns: 'paused' | 'none'.
local id = ARGV[1]
if not is_as_read(id, ARGV[2]) then return 'none' end
local s = get_schedule(id)
open_drain()
call('ZREM', P .. 'sc', id)
if not s then return 'none' end
s.paused = true
set_schedule(id, s)
return 'paused'
