-- Leases waiting messages, lane by lane around the ring, a small quantum a visit.
local QUANTUM = 8
local VISITS_OVER = 64
local SKIPS_MAX = 256
local buried, skipped, unreadable = 0, 0, 0

-- Lanes parked at the fairness threshold of some worker that this one may serve.
local function wake_parked(limit, fair_flow, fair_host)
  local least = math.max(fair_flow, fair_host)
  local lanes = call('ZRANGEBYSCORE', P .. 'fp', '-inf', '(' .. text(least), 'LIMIT', 0, limit)
  for i = 1, #lanes do
    local lane = lanes[i]
    local fair = kind(lane) == 'f' and fair_flow or fair_host
    local n = in_flight(lane)
    if n < fair then wake_lane(lane) else call('ZADD', P .. 'fp', text(n), lane) end
  end
  local hosts = call('ZRANGEBYSCORE', P .. 'hq', '-inf', '(' .. text(fair_host), 'LIMIT', 0, limit)
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
local function count_host(lane, run, host)
  if run.host ~= host and run.count > 0 then
    call('HINCRBY', P .. 'hi', run.host, run.count)
    run.count = 0
  end
  run.host, run.count = host, run.count + 1
  if kind(lane) == 'f' then
    call('HINCRBY', P .. 'hi', host, 1)
    run.count = 0
  end
end

-- One visit: leases up to `limit` from the head of the lane. Returns why it stopped early: T rate
-- spent, H its host is at the threshold, U unreadable record, B byte budget spent.
local function visit(lane, limit, out, nonce, lease_ms, fair_host, bytes)
  local key = P .. 'ln:' .. lane
  local taken, stop, run = 0, false, { count = 0 }
  while taken < limit and skipped < SKIPS_MAX and not stop do
    local ids = call('LRANGE', key, 0, limit - taken - 1)
    if #ids == 0 then break end
    local packed = call('HMGET', P .. 'm', unpack(ids))
    local missing = missing_envelopes(ids)
    local popped, leases, records, seen = 0, {}, {}, {}
    for i = 1, #ids do
      local id = ids[i]
      local r = packed[i] and parse_record(packed[i])
      local w = window(lane)
      if packed[i] and not r then
        unreadable = unreadable + 1
        stop = 'U'
      elseif not r or r.st ~= 'w' or r.lane ~= lane or seen[id] then
        popped, skipped = popped + 1, skipped + 1
        if w and w.credit > 0 then
          w.credit = w.credit - 1
          put_window(lane, w)
        end
      elseif missing[id] then
        popped, buried = popped + 1, buried + 1
        r.st = 'b'
        finish(id, r, 'x', '', {})
        event(id, 'x', '')
      elseif kind(lane) == 'f' and host_in_flight(r.host) >= fair_host then
        stop = 'H'
      elseif bytes.left < r.size and #out > 0 then
        stop = 'B'
      elseif w and w.credit == 0 and w.count >= settings(lane).rate then
        stop = 'T'
      else
        if w then
          if w.credit > 0 then w.credit = w.credit - 1 else w.count = w.count + 1 end
          put_window(lane, w)
        end
        popped, taken = popped + 1, taken + 1
        bytes.left = bytes.left - r.size
        r.st, r.no, r.nonce = 'l', r.no + 1, nonce
        if kind(lane) ~= 'q' then count_host(lane, run, r.host) end
        leases[#leases + 1], leases[#leases + 2] = text(now + lease_ms), id
        records[#records + 1], records[#records + 2] = id, pack_record(r)
        local n = #out
        out[n + 1], out[n + 2], out[n + 3] = id, text(r.no), text(r.failed)
        out[n + 4], out[n + 5], out[n + 6] = text(r.lost), r.ref, lane
      end
      if stop then break end
      seen[id] = true
    end
    if popped > 0 then call('LPOP', key, popped) end
    if #leases > 0 then
      call('ZADD', P .. 'l', unpack(leases))
      call('HSET', P .. 'm', unpack(records))
      slot(lane, #leases / 2)
    end
  end
  if run.count > 0 then call('HINCRBY', P .. 'hi', run.host, run.count) end
  return stop
end

local function park(lane, st)
  if st == 'H' then
    local head = get_record(call('LINDEX', P .. 'ln:' .. lane, 0))
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

local function lease(want, nonce, lease_ms, fair_flow, fair_host, byte_budget)
  local out, visits, bytes = {}, 0, { left = byte_budget }
  while #out < want * 6 and visits < want + VISITS_OVER and skipped < SKIPS_MAX do
    local lane = call('LPOP', P .. 'run')
    if not lane then break end
    visits = visits + 1
    call('HSET', P .. 'st', lane, 'V')
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
    local limit = math.min(QUANTUM, want - #out / 6, room)
    if settings(lane).paused then limit, stop = 0, false end
    if limit > 0 then
      stop = visit(lane, limit, out, nonce, lease_ms, fair_host, bytes)
    end
    if stop == 'H' or stop == 'U' or stop == 'F' then
      park(lane, stop)
    else
      call('HDEL', P .. 'st', lane)
      wake_lane(lane)
    end
    if stop == 'B' then break end
  end
  return out
end
