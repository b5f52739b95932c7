-- publish to a group: several messages that share one body key. Each is accepted, or a duplicate of
-- an earlier one; a missing body stops all.
-- ARGV: 1 body key, 2 due ms (0 = now), 3 delay ms (0 = none; wins over due), 4 retries, 5 size,
--   6 cap, 7 rate, 8 period ms, 9 dedup window ms, 10 number of members, then for each: id, dedup
--   scope ('' none), lane, destination host, event. Envelopes and body were set with a guard TTL in
--   this pipeline.
-- Returns: {} when a guarded body was gone, else for each member, flat: 'accepted' | 'duplicate',
--   and its id or that of the first. A repeat with the same ids changes nothing.
local body = ARGV[1]
local due, wait = number(ARGV[2], 'due'), number(ARGV[3], 'delay')
local retries, size = number(ARGV[4], 'retries'), number(ARGV[5], 'size')
local cap, rate, period = number(ARGV[6], 'cap'), number(ARGV[7], 'rate'), number(ARGV[8], 'period')
local dedup_ms = number(ARGV[9], 'dedup window')
local members = {}
for i = 1, number(ARGV[10], 'members') do
  local at = 11 + (i - 1) * 5
  members[i] = {
    id = ARGV[at], scope = ARGV[at + 1], lane = ARGV[at + 2], host = ARGV[at + 3],
    event = ARGV[at + 4],
  }
  if not members[i].event then error('a member is cut short') end
end

local answers, fresh, taken = {}, {}, {}
for i = 1, #members do
  local m = members[i]
  local answer, first = 'accepted', m.id
  if call('HEXISTS', P .. 'm', m.id) == 0 then
    local known = m.scope ~= '' and (taken[m.scope] or call('GET', P .. 'u:' .. m.scope))
    if not known then
      fresh[#fresh + 1] = m
      taken[m.scope] = m.id
    elseif known ~= m.id then
      answer, first = 'duplicate', known
    end
  end
  answers[2 * i - 1], answers[2 * i] = answer, first
end

if #fresh > 0 then
  refuse_when_full()
  local present = call('EXISTS', P .. 'b:' .. body) == 1
  for i = 1, #fresh do present = present and call('PTTL', P .. 'b:' .. fresh[i].id) > 0 end
  if not present then return {} end
  local users = 0
  if call('PERSIST', P .. 'b:' .. body) == 0 then
    -- It lives already, for members that an earlier call accepted.
    users = tonumber(call('HGET', P .. 'rc', body) or 1)
  end
  call('HSET', P .. 'rc', body, text(users + #fresh))
end
for i = 1, #fresh do
  local m = fresh[i]
  call('PERSIST', P .. 'b:' .. m.id)
  if m.scope ~= '' then call('SET', P .. 'u:' .. m.scope, m.id, 'PX', text(dedup_ms)) end
  touch_lane(m.lane, cap, rate, period)
  local record = new_record(m.lane, m.host, retries, size, body, '')
  enter(m.id, record, wait > 0 and now + wait or due)
  event(m.id, 'n', m.event)
end
-- What the pipeline has just set for nothing: a live body has no expiry.
local function drop_guarded(key)
  if call('PTTL', P .. 'b:' .. key) > 0 then call('UNLINK', P .. 'b:' .. key) end
end
drop_guarded(body)
for i = 1, #members do drop_guarded(members[i].id) end
log_events()
return answers
