-- publish to a group: several messages that share one body key, all or none.
-- ARGV: 1 body key, 2 due ms (0 = now), 3 delay ms (0 = none; wins over due), 4 retries, 5 size,
--   6 cap, 7 rate, 8 period ms, 9 number of members, then for each: id, lane, destination host,
--   event. Envelopes and body were set with a guard TTL in this pipeline.
-- Returns: 'accepted' | 'body_missing'. Any member that exists means a repeat.
local body = ARGV[1]
local due, wait = number(ARGV[2], 'due'), number(ARGV[3], 'delay')
local retries, size = number(ARGV[4], 'retries'), number(ARGV[5], 'size')
local cap, rate, period = number(ARGV[6], 'cap'), number(ARGV[7], 'rate'), number(ARGV[8], 'period')
local members = {}
for i = 1, number(ARGV[9], 'members') do
  local at = 10 + (i - 1) * 4
  members[i] = { id = ARGV[at], lane = ARGV[at + 1], host = ARGV[at + 2], event = ARGV[at + 3] }
  if not members[i].event then error('a member is cut short') end
end

for i = 1, #members do
  if call('HEXISTS', P .. 'm', members[i].id) == 1 then return 'accepted' end
end
refuse_when_full()
local guarded = call('PTTL', P .. 'b:' .. body) > 0
for i = 1, #members do
  guarded = guarded and call('PTTL', P .. 'b:' .. members[i].id) > 0
end
if not guarded then return 'body_missing' end
call('PERSIST', P .. 'b:' .. body)
call('HSET', P .. 'rc', body, text(#members))
for i = 1, #members do
  local member = members[i]
  call('PERSIST', P .. 'b:' .. member.id)
  touch_lane(member.lane, cap, rate, period)
  local record = new_record(member.lane, member.host, retries, size, body, '')
  enter(member.id, record, wait > 0 and now + wait or due)
  event(member.id, 'n', member.event)
end
log_events()
return 'accepted'
