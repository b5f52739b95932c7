-- Resumes a schedule; one that is not paused keeps its due time.
-- ARGV: 1 id, 2 body key for which the due time was found, 3 next due ms.
-- Returns: 'resumed' | 'changed' (another was put in between) | 'none'.
local id, due = ARGV[1], number(ARGV[3], 'due')
local s = get_schedule(id)
if not s then return 'none' end
if s.body ~= ARGV[2] then return 'changed' end
if not s.paused then return 'resumed' end
open_drain()
s.paused = false
set_schedule(id, s)
call('ZADD', P .. 'sc', text(due), id)
return 'resumed'
