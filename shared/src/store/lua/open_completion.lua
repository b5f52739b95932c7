-- Opens the empty placeholder of a deferred completion. ARGV: 1 name, 2 context: what whoever
--   completes it needs to know. Returns: 'opened' | 'open', which keeps its first context |
--   'stopped': its operation was cancelled, and nothing of it is opened any more.
local placeholder = P .. 'c:' .. ARGV[1]
local operation, message = ARGV[1]:match('^([^:]*):(.*)$')
if call('EXISTS', P .. 'cs:' .. operation) == 1 then return 'stopped' end
-- A result outlives its placeholder. One that was opened beside it could never be filled, nor end.
if call('EXISTS', placeholder .. ':final') == 1 then return 'open' end
local opened = call('SET', placeholder, ARGV[2], 'NX')
-- Whoever cancels the operation finds it here until it has its result or is withdrawn.
call('ZADD', P .. 'cw:' .. operation, 'NX', NOW, message)
return opened and 'opened' or 'open'
