-- Opens the empty placeholder of a deferred completion. ARGV: 1 name. Returns: 'opened' | 'open'.
local opened = call('SET', P .. 'c:' .. ARGV[1], '', 'NX')
return opened and 'opened' or 'open'
