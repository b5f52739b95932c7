-- Replaces a URL group if it is still the one that was read.
-- ARGV: 1 name, 2 the record that was read, empty for none, 3 the new one, empty to remove it,
--   4 most groups of the shard.
-- Returns: 'replaced' | 'changed' (another one is stored: read it and decide anew) | 'full' (a new
--   one has no place). A repeat of the one that replaced it is 'replaced'.
local name, read, new = ARGV[1], ARGV[2], ARGV[3]
local most = number(ARGV[4], 'most groups')
local stored = call('HGET', P .. 'ug', name) or ''
if stored == new then return 'replaced' end
if stored ~= read then return 'changed' end
if new == '' then
  open_drain()
  call('HDEL', P .. 'ug', name)
  return 'replaced'
end
if stored == '' and call('HLEN', P .. 'ug') >= most then return 'full' end
call('HSET', P .. 'ug', name, new)
return 'replaced'
