-- Creates or replaces a schedule whose message the same pipeline has just set with a guard TTL.
-- ARGV: 1 id, 2 body key (new at every put), 3 definition, 4 first due ms, 5 most schedules of this
--   shard, 6 dedup scope ('' none), 7 dedup window ms.
-- Returns: { 'accepted', id } | { 'duplicate', first id } | { 'too_many', id }
--   | { 'body_missing', id }. A repeat with the same body key is accepted and changes nothing.
local id, body, scope = ARGV[1], ARGV[2], ARGV[6]
local due, most = number(ARGV[4], 'due'), number(ARGV[5], 'most schedules')
local dedup_ms = number(ARGV[7], 'dedup window')
local old = get_schedule(id)
if old and old.body == body then return { 'accepted', id } end
local first = scope ~= '' and call('GET', P .. 'u:' .. scope)
if first and call('HEXISTS', P .. 'sd', first) == 1 then
  drop_guarded(body)
  return { 'duplicate', first }
end
if not old and call('HLEN', P .. 'sd') >= most then
  drop_guarded(body)
  return { 'too_many', id }
end
refuse_when_full()
if call('PERSIST', P .. 'b:' .. body) == 0 then return { 'body_missing', id } end
if scope ~= '' then call('SET', P .. 'u:' .. scope, id, 'PX', text(dedup_ms)) end
call('HSET', P .. 'sd', id, ARGV[3])
set_schedule(id, { body = body, paused = false, fired = 0, ids = '', fault = '' })
call('ZADD', P .. 'sc', text(due), id)
if old then drop_body(old.body) end
return { 'accepted', id }
