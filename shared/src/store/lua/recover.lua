-- Leases that ended without a settlement come back. Without `may_recover` only those overdue by
-- OVERDUE lease times: the caller has not been in touch long enough to judge the others.
local OVERDUE = 4

local function recover(limit, may_recover, lease_ms)
  local until_ms = may_recover and now or now - OVERDUE * lease_ms
  local ids = call('ZRANGEBYSCORE', P .. 'l', '-inf', text(until_ms), 'LIMIT', '0', text(limit))
  for i = #ids, 1, -1 do
    local r = get_record(ids[i])
    if r and r.st == 'l' then
      give_back(ids[i], r, true, lease_ms)
      event(ids[i], r.st == 'c' and 'c' or 'v', '')
    else
      call('ZREM', P .. 'l', ids[i])
    end
  end
  return #ids
end

-- After a clock step back, leases must not lie further ahead than a lease can.
local CLAMP_SLACK_MS = 2000
local function clamp_leases(limit, lease_ms)
  local beyond = '(' .. text(now + lease_ms + CLAMP_SLACK_MS)
  local ids = call('ZRANGEBYSCORE', P .. 'l', beyond, '+inf', 'LIMIT', '0', text(limit))
  for i = 1, #ids do call('ZADD', P .. 'l', text(now + lease_ms), ids[i]) end
end
