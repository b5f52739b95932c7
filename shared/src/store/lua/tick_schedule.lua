-- Fires a schedule once: acts only if it is still the one that was read, and if its due time is the
-- expected one and has come. Any number of schedulers may call it; no leader, no lock.
-- ARGV: 1 schedule id, 2 body key, 3 expected due ms, 4 next due ms (0 = never), 5 delay ms,
--   6 retries, 7 size, 8 cap, 9 rate, 10 period ms, 11 fault ('' none), 12 number of members, then
--   for each: id, lane, destination host, event. The members' envelopes were set with a guard TTL in
--   this pipeline and name the schedule's body.
-- Returns: 'fired' | 'not_due' | 'gone' (its body is missing) | 'body_missing' (a member's is).
local schedule, body = ARGV[1], ARGV[2]
local expected, following = number(ARGV[3], 'expected due'), number(ARGV[4], 'next due')
local wait, retries = number(ARGV[5], 'delay'), number(ARGV[6], 'retries')
local size, cap = number(ARGV[7], 'size'), number(ARGV[8], 'cap')
local rate, period = number(ARGV[9], 'rate'), number(ARGV[10], 'period')
local members = {}
for i = 1, number(ARGV[12], 'members') do
  local at = 13 + (i - 1) * 4
  members[i] = { id = ARGV[at], lane = ARGV[at + 1], host = ARGV[at + 2], event = ARGV[at + 3] }
  if not members[i].event then error('a member is cut short') end
end

local s = get_schedule(schedule)
local score = tonumber(call('ZSCORE', P .. 'sc', schedule) or -1)
if not s or s.body ~= body or score ~= expected or now < expected
  or (following > 0 and following <= now) then
  for i = 1, #members do drop_guarded(members[i].id) end
  return 'not_due'
end
refuse_when_full()
if #members > 0 and call('EXISTS', P .. 'b:' .. body) == 0 then return 'gone' end
for i = 1, #members do
  if call('PTTL', P .. 'b:' .. members[i].id) <= 0 then return 'body_missing' end
end
if following > 0 then call('ZADD', P .. 'sc', text(following), schedule)
else call('ZREM', P .. 'sc', schedule) end
local ids = {}
for i = 1, #members do
  local member = members[i]
  call('PERSIST', P .. 'b:' .. member.id)
  share_body(body)
  touch_lane(member.lane, cap, rate, period)
  local record = new_record(member.lane, member.host, retries, size, body, '')
  enter(member.id, record, wait > 0 and now + wait or 0)
  event(member.id, 'n', member.event)
  ids[i] = member.id
end
if #ids > 0 then s.fired, s.ids = now, table.concat(ids, ' ') end
s.fault = ARGV[11]
set_schedule(schedule, s)
log_events()
return 'fired'
