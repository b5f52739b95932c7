-- publish to a group: several messages that share one body key, all or none.
-- ARGV: 1 body key, 2 due ms (0 = now), 3 retries, 4 size, 5 number of members, then for each: id,
--   lane, destination host, event. Envelopes and body were set with a guard TTL in this pipeline.
-- Returns: { 'accepted' } | { 'body_missing' }. Any member that exists means a repeat.
local body = ARGV[1]
local due, retries = number(ARGV[2], 'due'), number(ARGV[3], 'retries')
local size, count = number(ARGV[4], 'size'), number(ARGV[5], 'members')
local members = {}
for i = 1, count do
  local at = 6 + (i - 1) * 4
  members[i] = { id = ARGV[at], lane = ARGV[at + 1], host = ARGV[at + 2], event = ARGV[at + 3] }
  if not members[i].event then error('a member is cut short') end
end

for i = 1, count do
  if call('HEXISTS', P .. 'm', members[i].id) == 1 then return { 'accepted' } end
end
refuse_when_full()
local guarded = call('PTTL', P .. 'b:' .. body) > 0
for i = 1, count do
  guarded = guarded and call('PTTL', P .. 'b:' .. members[i].id) > 0
end
if not guarded then return { 'body_missing' } end
call('PERSIST', P .. 'b:' .. body)
call('HSET', P .. 'rc', body, text(count))
for i = 1, count do
  local member = members[i]
  call('PERSIST', P .. 'b:' .. member.id)
  touch_lane(member.lane, 0, 0, 0)
  enter(member.id, new_record(member.lane, member.host, retries, size, body, ''), due)
  event(member.id, 'n', member.event)
end
log_events()
return { 'accepted' }
