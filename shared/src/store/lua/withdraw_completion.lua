-- Takes back the placeholder of a deferred completion, unless it has its result. ARGV: 1 name, 2 'keep' to
--   let its operation name it still.
-- Returns: 'gone' | 'final'.
local placeholder = P .. 'c:' .. ARGV[1]
local operation, message = ARGV[1]:match('^([^:]*):(.*)$')
local is_final = call('EXISTS', placeholder .. ':final') == 1
if is_final or ARGV[2] ~= 'keep' then call('ZREM', P .. 'cw:' .. operation, message) end
if is_final then return 'final' end
call('DEL', placeholder)
return 'gone'
