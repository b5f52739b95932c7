-- The first final result of a deferred completion wins; claim and result are one write.
-- ARGV: 1 name, 2 result, 3 retention ms.
-- Returns: { 'won', result } | { 'lost', first result } | { 'unknown' } when no placeholder is open:
--   nothing is applied then, so that expiry can never reopen a result.
local SLACK_MS = 60000
local placeholder = P .. 'c:' .. ARGV[1]
local final = placeholder .. ':final'
local retention = number(ARGV[3], 'retention')
if call('EXISTS', placeholder) == 0 then return { 'unknown' } end
-- The placeholder goes first: a result that expired before it could be won once more.
if not call('SET', final, ARGV[2], 'NX', 'PXAT', text(now + retention + SLACK_MS)) then
  return { 'lost', call('GET', final) }
end
local operation, message = ARGV[1]:match('^([^:]*):(.*)$')
call('ZREM', P .. 'cw:' .. operation, message)
call('PEXPIREAT', placeholder, text(now + retention))
return { 'won', ARGV[2] }
