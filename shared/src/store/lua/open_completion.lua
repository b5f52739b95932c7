-- Opens the empty placeholder of a deferred completion. ARGV: 1 name, 2 context: what whoever
--   completes it needs to know. Returns: 'opened' | 'open', which keeps its first context.
local opened = call('SET', P .. 'c:' .. ARGV[1], ARGV[2], 'NX')
return opened and 'opened' or 'open'
