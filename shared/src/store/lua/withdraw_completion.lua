-- Takes back the placeholder of a deferred completion, unless it has its result. ARGV: 1 name.
-- Returns: 'gone' | 'final'.
local placeholder = P .. 'c:' .. ARGV[1]
local operation, message = ARGV[1]:match('^([^:]*):(.*)$')
call('ZREM', P .. 'cw:' .. operation, message)
if call('EXISTS', placeholder .. ':final') == 1 then return 'final' end
call('DEL', placeholder)
return 'gone'
