-- Opens the empty placeholder of a deferred completion. ARGV: 1 name, 2 context: what whoever
--   completes it needs to know. Returns: 'opened' | 'open', which keeps its first context.
local placeholder = P .. 'c:' .. ARGV[1]
-- A result outlives its placeholder. One that was opened beside it could never be filled, nor end.
if call('EXISTS', placeholder .. ':final') == 1 then return 'open' end
local opened = call('SET', placeholder, ARGV[2], 'NX')
return opened and 'opened' or 'open'
