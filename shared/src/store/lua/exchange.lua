-- exchange: settle, promote, recover and lease in one batch. O(settlements + want).
-- ARGV: 1 want, 2 nonce, 3 fair for flow lanes, 4 fair for host lanes and hosts, 5 may recover
--   (0|1), 6 lease ms, 7 byte budget, 8 delivered grace ms, 9 dead-letter retention ms,
--   10 number of settlements, then for each: id, lease number, nonce, outcome (k|r<delay ms>|x|c),
--   response, event, number of children, and for each child: id, envelope, body key, lane, host,
--   retries, size, delay ms, event.
-- Returns: TIME ms, next due ms (-1 none), more (0|1), states after each settlement (a letter for
--   each), leases (flat: id, record), counters (promoted, recovered, skipped, buried, unreadable,
--   trimmed).
local BATCH_MIN = 64

local want = number(ARGV[1], 'want')
local nonce = ARGV[2]
local fair_flow, fair_host = number(ARGV[3], 'fair'), number(ARGV[4], 'host fair')
local may_recover = ARGV[5] == '1'
local lease_ms, byte_budget = number(ARGV[6], 'lease'), number(ARGV[7], 'byte budget')
local done_ms, dead_ms = number(ARGV[8], 'grace'), number(ARGV[9], 'retention')
local settlements = read_settlements(11, number(ARGV[10], 'settlements'))
if not string.find(nonce, '^%d+$') then error('the nonce is not a number') end

open_drain()
local ids, states, seen = {}, {}, {}
for i = 1, #settlements do ids[i] = settlements[i].id end
local records = #ids > 0 and call('HMGET', P .. 'm', unpack(ids))
for i = 1, #settlements do
  local id = ids[i]
  -- A second settlement of a message looks at what the first one left.
  if seen[id] then
    end_plain()
    records[i] = call('HGET', P .. 'm', id)
  end
  seen[id] = true
  states[i] = settle(settlements[i], records[i])
end
end_plain()
local promoted = promote(math.max(BATCH_MIN, want))
-- Lanes that sleep are rare, so one call asks for all of them.
local sleep = call('EXISTS', P .. 'tm', P .. 'fp', P .. 'hq') > 0
if sleep then wake_timed(BATCH_MIN) end
local recovered = recover(BATCH_MIN, may_recover, lease_ms)
clamp_leases(BATCH_MIN, lease_ms)
if sleep then wake_parked(BATCH_MIN, fair_flow, fair_host) end
local leases = lease(want, nonce, lease_ms, fair_flow, fair_host, byte_budget)
local trimmed, is_behind = trim(#settlements + BATCH_MIN, done_ms, dead_ms)
log_events()

local more = call('LLEN', P .. 'run') > 0
if more then wake() end
more = more or is_behind or promoted >= math.max(BATCH_MIN, want) or recovered >= BATCH_MIN

local next_due = -1
local sets = { 'd', 'tm', 'l' }
for i = 1, #sets do
  local first = call('ZRANGE', P .. sets[i], '0', '0', 'WITHSCORES')
  local score = first[2] and tonumber(first[2])
  if score and (next_due < 0 or score < next_due) then next_due = score end
end
return {
  NOW, text(next_due), more and 1 or 0, table.concat(states), leases,
  { promoted, recovered, skipped, buried, unreadable, trimmed },
}
