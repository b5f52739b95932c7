-- Fires a schedule once: acts only if its due time is the expected one and has come. Any number of
-- schedulers may call it; no leader, no lock.
-- ARGV: 1 schedule id, 2 expected due ms, 3 next due ms, 4 message id, 5 body key, 6 lane,
--   7 destination host, 8 retries, 9 size, 10 delay ms, 11 event. The envelope was set with a guard
--   TTL in this pipeline and names the schedule's body.
-- Returns: 'accepted' | 'not_due' | 'body_missing'.
local schedule, id, body = ARGV[1], ARGV[4], ARGV[5]
local expected, following = number(ARGV[2], 'expected due'), number(ARGV[3], 'next due')
local retries, size = number(ARGV[8], 'retries'), number(ARGV[9], 'size')
local wait = number(ARGV[10], 'delay')
local score = tonumber(call('ZSCORE', P .. 'sc', schedule) or -1)
if score ~= expected or now < expected or following <= now then return 'not_due' end
refuse_when_full()
if call('HEXISTS', P .. 'm', id) == 1 or call('EXISTS', P .. 'b:' .. body) == 0
  or call('PERSIST', P .. 'b:' .. id) == 0 then return 'body_missing' end
call('ZADD', P .. 'sc', text(following), schedule)
share_body(body)
enter(id, new_record(ARGV[6], ARGV[7], retries, size, body, ''), wait > 0 and now + wait or 0)
event(id, 'n', ARGV[11])
log_events()
return 'accepted'
