-- Pauses a schedule: it is due at no time until it is resumed. ARGV: 1 id.
-- Returns: 'paused' | 'none'.
local id = ARGV[1]
local s = get_schedule(id)
if not s then return 'none' end
open_drain()
call('ZREM', P .. 'sc', id)
s.paused = true
set_schedule(id, s)
return 'paused'
