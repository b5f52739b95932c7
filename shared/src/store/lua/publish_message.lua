-- publish: accept one message whose envelope the same pipeline has just set with a guard TTL.
-- ARGV: 1 id, 2 dedup scope ('' none), 3 dedup window ms, 4 lane, 5 destination host, 6 due (ms
--   since the epoch, 0 = now), 7 delay ms (0 = none; wins over due), 8 retries, 9 size, 10 cap,
--   11 rate, 12 period ms, 13 event.
-- Returns: { 'accepted', id } | { 'duplicate', first id } | { 'body_missing', id }.
-- A repeat with the same id is accepted and changes nothing.
local id, scope, lane = ARGV[1], ARGV[2], ARGV[4]
local dedup_ms, due = number(ARGV[3], 'dedup window'), number(ARGV[6], 'due')
local wait = number(ARGV[7], 'delay')
local retries, size = number(ARGV[8], 'retries'), number(ARGV[9], 'size')
local cap, rate, period = number(ARGV[10], 'cap'), number(ARGV[11], 'rate'), number(ARGV[12], 'period')

if call('HEXISTS', P .. 'm', id) == 1 then return { 'accepted', id } end
if scope ~= '' then
  local first = call('GET', P .. 'u:' .. scope)
  if first == id then return { 'accepted', id } end
  if first then
    -- Only what this pipeline has just set: a live body of that name has no expiry.
    if call('PTTL', P .. 'b:' .. id) > 0 then call('UNLINK', P .. 'b:' .. id) end
    return { 'duplicate', first }
  end
end
refuse_when_full()
if call('PERSIST', P .. 'b:' .. id) == 0 then return { 'body_missing', id } end
if scope ~= '' then call('SET', P .. 'u:' .. scope, id, 'PX', text(dedup_ms)) end
touch_lane(lane, cap, rate, period)
enter(id, new_record(lane, ARGV[5], retries, size, '', ''), wait > 0 and now + wait or due)
event(id, 'n', ARGV[13])
log_events()
return { 'accepted', id }
