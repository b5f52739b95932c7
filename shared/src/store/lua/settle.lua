-- Deliveries that need nothing but their end: no flag, no child, nothing that holds for them. Almost
-- all are such, so they end together. What else is settled meanwhile may see their slots as taken;
-- wake_lane puts that right at the end.
local plain = { ids = {}, records = {}, done = {}, lanes = {}, hosts = {}, of_lane = {}, of_host = {} }

local function count(names, counts, name)
  if not counts[name] then
    names[#names + 1] = name
    counts[name] = 0
  end
  counts[name] = counts[name] + 1
end

local function is_plain(s, r)
  return s.outcome == 'k' and #s.children == 0 and r.flags == '' and r.holds == ''
end

local function end_later(s, r)
  local n = #plain.ids
  r.st, r.nonce = 'k', ''
  plain.ids[n + 1], plain.done[n + 1] = s.id, text(now) .. ' ' .. s.id
  plain.records[2 * n + 1], plain.records[2 * n + 2] = s.id, pack_record(r)
  count(plain.lanes, plain.of_lane, r.lane)
  if kind(r.lane) ~= 'q' then count(plain.hosts, plain.of_host, r.host) end
end

local function end_plain()
  if #plain.ids == 0 then return end
  call('ZREM', P .. 'l', unpack(plain.ids))
  for i = 1, #plain.lanes do slot(plain.lanes[i], -plain.of_lane[plain.lanes[i]]) end
  call('HSET', P .. 'm', unpack(plain.records))
  call('RPUSH', P .. 'done', unpack(plain.done))
  for i = 1, #plain.hosts do free_host(plain.hosts[i], plain.of_host[plain.hosts[i]]) end
  for i = 1, #plain.lanes do wake_lane(plain.lanes[i]) end
  plain = { ids = {}, records = {}, done = {}, lanes = {}, hosts = {}, of_lane = {}, of_host = {} }
end

-- Ends an attempt. outcome: k delivered, r retry after delay ms, x dead, c cancelled.
-- Returns the state the message is in now, or '-' when a stale settlement changed nothing.
local function settle(s)
  local r = get_record(s.id)
  if not r then return '-' end
  if r.st == 'l' and r.no == s.no and r.nonce == s.nonce then
    if is_plain(s, r) then
      end_later(s, r)
      event(s.id, 'k', s.event)
      return 'k'
    end
    local outcome = s.outcome
    if has_flag(r, 'd') then
      finish(s.id, r, 'k', '', {})
      return 'k'
    end
    if has_flag(r, 'c') and outcome ~= 'k' then outcome = 'c' end
    if outcome == 'r' and r.failed >= r.retries then outcome = 'x' end
    if outcome ~= 'r' then
      local children = outcome == 'c' and {} or s.children
      finish(s.id, r, outcome, outcome == 'x' and s.response or '', children)
      event(s.id, outcome, s.event)
      return outcome
    end
    r.failed, r.nonce = r.failed + 1, ''
    call('ZREM', P .. 'l', s.id)
    r.st = kind(r.lane) == 'q' and 'h' or 'd'
    put_record(s.id, r)
    delay(s.id, now + s.delay)
    enqueue_children(r, s.children)
    if r.st == 'd' then
      slot(r.lane, -1)
      host_slot(r, -1)
      wake_lane(r.lane)
    end
    event(s.id, 'r', s.event)
    return r.st
  end
  if s.outcome ~= 'k' then return '-' end
  if r.st == 'l' then
    if not has_flag(r, 'd') then
      r.flags = r.flags .. 'd'
      put_record(s.id, r)
      enqueue_children(r, s.children)
      event(s.id, 'k', s.event)
    end
    return 'l'
  end
  if r.st == 'w' or r.st == 'd' or r.st == 'h' then
    finish(s.id, r, 'k', '', s.children)
    event(s.id, 'k', s.event)
    return 'k'
  end
  return '-'
end

-- Reads n settlements from ARGV[i]; raises on anything malformed. Returns them and the next index.
local function read_settlements(i, n)
  local settlements = {}
  for k = 1, n do
    local s = {
      id = ARGV[i], no = number(ARGV[i + 1], 'lease number'), nonce = ARGV[i + 2],
      outcome = ARGV[i + 3], delay = number(ARGV[i + 4], 'delay'), response = ARGV[i + 5],
      event = ARGV[i + 6], children = {},
    }
    if not string.find(s.outcome, '^[krxc]$') then error('unknown outcome') end
    local count = number(ARGV[i + 7], 'children')
    i = i + 8
    for c = 1, count do
      s.children[c] = {
        id = ARGV[i], envelope = ARGV[i + 1], ref = ARGV[i + 2], lane = ARGV[i + 3],
        host = ARGV[i + 4], retries = number(ARGV[i + 5], 'retries'),
        size = number(ARGV[i + 6], 'size'), delay = number(ARGV[i + 7], 'delay'),
        event = ARGV[i + 8],
      }
      if not s.children[c].event then error('a child is cut short') end
      i = i + 9
    end
    settlements[k] = s
  end
  return settlements, i
end
