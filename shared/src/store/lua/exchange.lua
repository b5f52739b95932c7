-- exchange: settle, promote, recover and lease in one batch. O(settlements + want + upkeep).
-- ARGV: 1 want, 2 nonce, 3 fair for flow lanes, 4 fair for host lanes and hosts, 5 upkeep (how many
--   leases and ended messages are looked at; 0 leaves that to another exchange), 6 may recover (0|1),
--   7 lease ms, 8 byte budget, 9 delivered grace ms, 10 dead-letter retention ms, 11 number of
--   settlements, then for each: id, lease number, nonce, outcome (k|r<delay ms>|x|c), response,
--   event, number of children, and for each child: id, envelope, body key, lane, host, retries,
--   size, delay ms, event.
-- Returns: TIME ms, next due ms (-1 none), more (0|1), behind (0|1: upkeep has reached its limit),
--   states after each settlement (a letter for each), leases (flat: id, record, envelope or '' when
--   it is to be asked for), counters (promoted, recovered, skipped, buried, unreadable, trimmed).
local BATCH_MIN = 64

local want = number(ARGV[1], 'want')
local nonce = ARGV[2]
local fair_flow, fair_host = number(ARGV[3], 'fair'), number(ARGV[4], 'host fair')
local upkeep_max, may_recover = number(ARGV[5], 'upkeep'), ARGV[6] == '1'
local lease_ms, byte_budget = number(ARGV[7], 'lease'), number(ARGV[8], 'byte budget')
local done_ms, dead_ms = number(ARGV[9], 'grace'), number(ARGV[10], 'retention')
local settlements = read_settlements(12, number(ARGV[11], 'settlements'))
if not string.find(nonce, '^%d+$') then error('the nonce is not a number') end

open_drain()
-- Whatever becomes runnable here is leased here, so others are woken for what is left at the end.
woken = true
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
local recovered, trimmed, is_behind = 0, 0, false
if upkeep_max > 0 then
  recovered, trimmed, is_behind = upkeep(upkeep_max, may_recover, lease_ms, done_ms, dead_ms)
end
local ready_max = math.max(BATCH_MIN, want)
local promoted, next_due = promote(ready_max)
-- Lanes that sleep are rare, so one call asks for all of them.
local sleep = call('EXISTS', P .. 'tm', P .. 'fp', P .. 'hq') > 0
if sleep then
  wake_timed(BATCH_MIN)
  wake_parked(BATCH_MIN, fair_flow, fair_host)
end
local leases = lease(want, nonce, lease_ms, fair_flow, fair_host, byte_budget)
log_events()

local dues = { first_due('l'), (sleep or sooner) and first_due('tm') or -1 }
for i = 1, #dues do
  if dues[i] >= 0 and (next_due < 0 or dues[i] < next_due) then next_due = dues[i] end
end
-- One that leases nothing may be about to leave: what it made due is for others.
woken = false
if ring > 0 or (sooner and want == 0) then wake() end
local more = ring > 0 or promoted >= ready_max
return {
  NOW, text(next_due), more and 1 or 0, is_behind and 1 or 0, table.concat(states), leases,
  { promoted, recovered, skipped, buried, unreadable, trimmed },
}
