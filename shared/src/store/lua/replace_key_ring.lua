-- Replaces the key ring if it is still the one that was read. Its key belongs to no shard, so here
-- KEYS[1] is hs:meta itself, and nothing else is touched.
-- ARGV: 1 the ring that was read, empty for none, 2 the new one.
-- Returns: 'replaced' | 'changed' (another one is stored: read it and decide anew). A repeat of the
--   one that replaced it is 'replaced'.
local stored = call('HGET', KEYS[1], 'keys') or ''
if stored == ARGV[2] then return 'replaced' end
if stored ~= ARGV[1] then return 'changed' end
call('HSET', KEYS[1], 'keys', ARGV[2])
return 'replaced'
