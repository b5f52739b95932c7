-- Deliveries that need nothing but their end: no flag, no child, nothing that holds for them. Almost
-- all are such, so they end together, and only the head of their records is written anew. What else
-- is settled meanwhile may see their slots as taken; wake_lane puts that right at the end.
local function no_deliveries()
  return { ids = {}, records = {}, done = {}, lanes = {}, hosts = {}, of_lane = {}, of_host = {} }
end
local plain = no_deliveries()

local function count(names, counts, name)
  if not counts[name] then
    names[#names + 1] = name
    counts[name] = 0
  end
  counts[name] = counts[name] + 1
end

-- What follows the nonce in a record without flags: its body key and its end.
local UNFLAGGED = '^%d+|%d+|%d+||%d+|([^|]*)|(.*)$'

-- Notes a delivery whose record begins with the head of its lease; false if it needs more than its end.
local function end_later(s, packed, head)
  local ref, ending = string.match(packed, UNFLAGGED, #head + 1)
  local place = ref and place_of(ending)
  if not place or place.holds ~= '' then return false end
  local n = #plain.ids
  plain.ids[n + 1], plain.done[n + 1] = s.id, done_entry(s.id, ref)
  plain.records[2 * n + 1] = s.id
  plain.records[2 * n + 2] = '1|k|' .. s.no .. '||' .. string.sub(packed, #head + 1)
  count(plain.lanes, plain.of_lane, place.lane)
  if kind(place.lane) ~= 'q' then count(plain.hosts, plain.of_host, place.host) end
  return true
end

local function end_plain()
  if #plain.ids == 0 then return end
  call('ZREM', P .. 'l', unpack(plain.ids))
  for i = 1, #plain.lanes do slot(plain.lanes[i], -plain.of_lane[plain.lanes[i]]) end
  call('HSET', P .. 'm', unpack(plain.records))
  call('RPUSH', P .. 'done', unpack(plain.done))
  for i = 1, #plain.hosts do free_host(plain.hosts[i], plain.of_host[plain.hosts[i]]) end
  for i = 1, #plain.lanes do wake_lane(plain.lanes[i]) end
  plain = no_deliveries()
end

-- Ends an attempt of the message whose record is `packed`. outcome: k delivered, r retry after delay
-- ms, x dead, c cancelled.
-- Returns the state the message is in now, or '-' when a stale settlement changed nothing.
local function settle(s, packed)
  if not packed then return '-' end
  local head = '1|l|' .. s.no .. '|' .. s.nonce .. '|'
  local is_ours = string.sub(packed, 1, #head) == head
  if is_ours and s.outcome == 'k' and #s.children == 0 and end_later(s, packed, head) then
    event(s.id, 'k', s.event)
    return 'k'
  end
  local r = parse_record(packed)
  if not r then return '-' end
  if is_ours then
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
      id = ARGV[i], no = ARGV[i + 1], nonce = ARGV[i + 2], outcome = ARGV[i + 3], delay = 0,
      response = ARGV[i + 4], event = ARGV[i + 5], children = {},
    }
    if s.outcome ~= 'k' and s.outcome ~= 'x' and s.outcome ~= 'c' then
      s.outcome, s.delay = 'r', number(string.match(s.outcome, '^r(%d+)$'), 'outcome')
    end
    local count = ARGV[i + 6] == '0' and 0 or number(ARGV[i + 6], 'children')
    i = i + 7
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
