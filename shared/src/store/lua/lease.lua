-- Leases waiting messages, lane by lane around the ring: each lane in it gets as much of a batch as
-- any other, or QUANTUM at a visit when the batch is too small for all of them.
local QUANTUM, QUANTUM_MAX = 8, 128
local VISITS_OVER = 64
local SKIPS_MAX = 256
local buried, skipped, unreadable = 0, 0, 0

-- Lanes parked at the fairness threshold of some worker that this one may serve.
local function wake_parked(limit, fair_flow, fair_host)
  local least = math.max(fair_flow, fair_host)
  local lanes = call('ZRANGEBYSCORE', P .. 'fp', '-inf', '(' .. text(least), 'LIMIT', '0', text(limit))
  for i = 1, #lanes do
    local lane = lanes[i]
    local fair = kind(lane) == 'f' and fair_flow or fair_host
    local n = in_flight(lane)
    if n < fair then wake_lane(lane) else call('ZADD', P .. 'fp', text(n), lane) end
  end
  local hosts = call('ZRANGEBYSCORE', P .. 'hq', '-inf', '(' .. text(fair_host), 'LIMIT', '0', text(limit))
  for i = 1, #hosts do
    local free = fair_host - host_in_flight(hosts[i])
    if free <= 0 then call('ZADD', P .. 'hq', text(host_in_flight(hosts[i])), hosts[i]) end
    for _ = 1, math.min(free, QUANTUM) do pass_turn(hosts[i], true) end
  end
end

-- Which of these ids have lost their envelope; almost always none, so one call asks for all.
local function missing_envelopes(ids)
  local keys = {}
  for i = 1, #ids do keys[i] = P .. 'b:' .. ids[i] end
  local missing = {}
  if #keys > 0 and call('EXISTS', unpack(keys)) < #keys then
    for i = 1, #ids do
      if call('EXISTS', keys[i]) == 0 then missing[ids[i]] = true end
    end
  end
  return missing
end

-- Counts leases of one host after the other; a flow lane asks about hosts in between, so there
-- each counts at once.
local function count_host(is_flow, run, host)
  if run.host ~= host and run.count > 0 then
    call('HINCRBY', P .. 'hi', run.host, text(run.count))
    run.count = 0
  end
  run.host, run.count = host, run.count + 1
  if is_flow then
    call('HINCRBY', P .. 'hi', host, '1')
    run.count = 0
  end
end

-- A waiting record: its lease number, where its failures begin, its size and its end.
local WAITING = '^1|w|(%d+)|%d*|()%d+|%d+|%d+|%l*|(%d+)|[^|]*|(.*)$'

-- One visit: leases up to `limit` from the head of the lane. Returns why it stopped early: T rate
-- spent, H its host is at the threshold, U unreadable record, B byte budget spent.
local function visit(lane, limit, out, nonce, ends, fair_host, bytes)
  local key, is_queue, is_flow = P .. 'ln:' .. lane, kind(lane) == 'q', kind(lane) == 'f'
  local taken, stop, run = 0, false, { count = 0 }
  while taken < limit and skipped < SKIPS_MAX and not stop do
    local ids = call('LRANGE', key, '0', text(limit - taken - 1))
    if #ids == 0 then break end
    local packed = call('HMGET', P .. 'm', unpack(ids))
    local missing = missing_envelopes(ids)
    local popped, leases, records, seen = 0, {}, {}, {}
    for i = 1, #ids do
      local id = ids[i]
      local no, rest, size, ending = string.match(packed[i] or '', WAITING)
      local place = no and place_of(ending)
      local w = window(lane)
      if not place and packed[i] and not parse_record(packed[i]) then
        unreadable = unreadable + 1
        stop = 'U'
      elseif not place or place.lane ~= lane or seen[id] then
        popped, skipped = popped + 1, skipped + 1
        if w and w.credit > 0 then
          w.credit = w.credit - 1
          put_window(lane, w)
        end
      elseif missing[id] then
        popped, buried = popped + 1, buried + 1
        local r = parse_record(packed[i])
        r.st = 'b'
        finish(id, r, 'x', '', {})
        event(id, 'x', '')
      elseif is_flow and host_in_flight(place.host) >= fair_host then
        stop = 'H'
      elseif bytes.left < tonumber(size) and #out > 0 then
        stop = 'B'
      elseif w and w.credit == 0 and w.count >= settings(lane).rate then
        stop = 'T'
      else
        if w then
          if w.credit > 0 then w.credit = w.credit - 1 else w.count = w.count + 1 end
          put_window(lane, w)
        end
        popped, taken = popped + 1, taken + 1
        bytes.left = bytes.left - size
        if not is_queue then count_host(is_flow, run, place.host) end
        local n, record = #records, string.format('1|l|%d|%s|', no + 1, nonce) .. string.sub(packed[i], rest)
        leases[n + 1], leases[n + 2] = ends, id
        records[n + 1], records[n + 2] = id, record
        out[#out + 1], out[#out + 2] = id, record
      end
      if stop then break end
      seen[id] = true
    end
    if popped > 0 then call('LPOP', key, text(popped)) end
    if #leases > 0 then
      call('ZADD', P .. 'l', unpack(leases))
      call('HSET', P .. 'm', unpack(records))
      slot(lane, #leases / 2)
    end
  end
  if run.count > 0 then call('HINCRBY', P .. 'hi', run.host, text(run.count)) end
  return stop
end

local function park(lane, st)
  if st == 'H' then
    local head = get_record(call('LINDEX', P .. 'ln:' .. lane, '0'))
    call('HSET', P .. 'st', lane, 'H')
    call('RPUSH', P .. 'hw:' .. head.host, lane)
    call('ZADD', P .. 'hq', text(host_in_flight(head.host)), head.host)
  elseif st == 'F' then
    call('HSET', P .. 'st', lane, 'F')
    call('ZADD', P .. 'fp', text(in_flight(lane)), lane)
    wake()
  else
    call('HSET', P .. 'st', lane, st)
  end
end

-- Returns id and record of each leased message, flat.
local function lease(want, nonce, lease_ms, fair_flow, fair_host, byte_budget)
  local out, visits, bytes = {}, 0, { left = byte_budget }
  local share = math.ceil(want / math.max(1, call('LLEN', P .. 'run')))
  local quantum, ends = math.min(math.max(QUANTUM, share), QUANTUM_MAX), text(now + lease_ms)
  while #out < want * 2 and visits < want + VISITS_OVER and skipped < SKIPS_MAX do
    local lane = call('LPOP', P .. 'run')
    if not lane then break end
    visits = visits + 1
    local busy, k = in_flight(lane), kind(lane)
    local room = cap_of(lane) - busy
    local stop = false
    if k ~= 'q' then
      local fair_room = (k == 'f' and fair_flow or fair_host) - busy
      if fair_room < room then
        room = fair_room
        if room <= 0 and waiting(lane) > 0 then stop = 'F' end
      end
    end
    local limit = math.min(quantum, want - #out / 2, room)
    if settings(lane).paused then limit, stop = 0, false end
    if limit > 0 then
      stop = visit(lane, limit, out, nonce, ends, fair_host, bytes)
    end
    if stop == 'B' then
      -- Its head is too large for what is left. It keeps its turn, or smaller ones always came first.
      call('LPUSH', P .. 'run', lane)
      wake()
      break
    end
    if stop == 'H' or stop == 'U' or stop == 'F' then park(lane, stop) else place_lane(lane, 'R') end
  end
  return out
end
