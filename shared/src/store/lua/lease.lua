-- Leases waiting messages, lane by lane around the ring: each lane in it gets as much of a batch as
-- any other, or QUANTUM at a visit when the batch is too small for all of them.
local QUANTUM, QUANTUM_MAX = 8, 128
local VISITS_OVER = 64
local SKIPS_MAX = 256
-- Envelopes up to this size come with their leases: asking for them would cost another call.
local INLINE_MAX = 4096
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

-- Of the messages with these ids, sizes and body keys: the envelope of each that may come along, is
-- small and has a body of its own; true for any other that has an envelope; false for one that has
-- lost it. Almost always all are of one kind, so one call is enough.
local function find_envelopes(ids, sizes, refs, may_come)
  local found, small, others, at_small = {}, {}, {}, {}
  for i = 1, #ids do
    local key = P .. 'b:' .. ids[i]
    if may_come and sizes[i] and sizes[i] <= INLINE_MAX and refs[i] == '' then
      small[#small + 1], at_small[#small + 1] = key, i
    else
      others[#others + 1], found[i] = key, true
    end
  end
  if #others > 0 and call('EXISTS', unpack(others)) < #others then
    for i = 1, #ids do found[i] = found[i] and call('EXISTS', P .. 'b:' .. ids[i]) == 1 end
  end
  local values = #small > 0 and call('MGET', unpack(small))
  for k = 1, #small do found[at_small[k]] = values[k] end
  return found
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

-- A waiting record: its lease number, where its failures begin, its size, body key and end.
local WAITING = '^1|w|(%d+)|%d*|()%d+|%d+|%d+|%l*|(%d+)|([^|]*)|(.*)$'

-- One visit: leases up to `limit` from the head of the lane. Returns why it stopped early (T rate
-- spent, H its host is at the threshold, U unreadable record, B byte budget spent), and whether it
-- emptied the lane.
local function visit(lane, limit, out, nonce, ends, fair_host, bytes)
  local key, is_queue, is_flow = P .. 'ln:' .. lane, kind(lane) == 'q', kind(lane) == 'f'
  local taken, stop, is_empty, run = 0, false, false, { count = 0 }
  while taken < limit and skipped < SKIPS_MAX and not (stop or is_empty) do
    local asked = limit - taken
    local ids = call('LRANGE', key, '0', text(asked - 1))
    if #ids == 0 then
      is_empty = true
      break
    end
    local packed = call('HMGET', P .. 'm', unpack(ids))
    local nos, rests, sizes, refs, endings = {}, {}, {}, {}, {}
    for i = 1, #ids do
      local size
      nos[i], rests[i], size, refs[i], endings[i] = string.match(packed[i] or '', WAITING)
      sizes[i] = tonumber(size)
    end
    -- Of a flow lane its rate or its hosts may let few of these go.
    local envelopes = find_envelopes(ids, sizes, refs, not is_flow)
    local popped, leases, records, seen = 0, {}, {}, {}
    for i = 1, #ids do
      local id, size = ids[i], sizes[i]
      local place = size and place_of(endings[i])
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
      elseif not envelopes[i] then
        popped, buried = popped + 1, buried + 1
        local r = parse_record(packed[i])
        r.st = 'b'
        finish(id, r, 'x', '', {})
        event(id, 'x', '')
      elseif is_flow and host_in_flight(place.host) >= fair_host then
        stop = 'H'
      elseif bytes.left < size and #out > 0 then
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
        local head = string.format('1|l|%d|%s|', nos[i] + 1, nonce)
        local n, record, o = #records, head .. string.sub(packed[i], rests[i]), #out
        leases[n + 1], leases[n + 2] = ends, id
        records[n + 1], records[n + 2] = id, record
        out[o + 1], out[o + 2], out[o + 3] = id, record, envelopes[i] ~= true and envelopes[i] or ''
      end
      if stop then break end
      seen[id] = true
    end
    if popped > 0 then call('LPOP', key, text(popped)) end
    is_empty = #ids < asked and popped == #ids
    if #leases > 0 then
      call('ZADD', P .. 'l', unpack(leases))
      call('HSET', P .. 'm', unpack(records))
      slot(lane, #leases / 2)
    end
  end
  if run.count > 0 then call('HINCRBY', P .. 'hi', run.host, text(run.count)) end
  return stop, is_empty
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
    -- For a worker with more room. One token may come to this one, which has none.
    if call('ZCARD', P .. 'hb') > 1 then
      for _ = call('LLEN', P .. 'w') + 1, 2 do call('RPUSH', P .. 'w', '1') end
    end
  else
    call('HSET', P .. 'st', lane, st)
  end
end

-- Returns id, record and envelope of each leased message, flat; an envelope that is not small is ''.
local function lease(want, nonce, lease_ms, fair_flow, fair_host, byte_budget)
  local out, visits, bytes = {}, 0, { left = byte_budget }
  ring = call('LLEN', P .. 'run')
  local share = math.ceil(want / math.max(1, ring))
  local quantum, ends = math.min(math.max(QUANTUM, share), QUANTUM_MAX), text(now + lease_ms)
  while ring > 0 and #out < want * 3 and visits < want + VISITS_OVER and skipped < SKIPS_MAX do
    local lane = call('LPOP', P .. 'run')
    ring, visits = ring - 1, visits + 1
    local busy, k = in_flight(lane), kind(lane)
    local room = cap_of(lane) - busy
    local stop, is_empty = false, false
    if k ~= 'q' then
      local fair_room = (k == 'f' and fair_flow or fair_host) - busy
      if fair_room < room then
        room = fair_room
        if room <= 0 and waiting(lane) > 0 then stop = 'F' end
      end
    end
    local limit = math.min(quantum, want - #out / 3, room)
    if settings(lane).paused then limit, stop = 0, false end
    if limit > 0 then
      stop, is_empty = visit(lane, limit, out, nonce, ends, fair_host, bytes)
    end
    if stop == 'B' then
      -- Its head is too large for what is left. It keeps its turn, or smaller ones always came first.
      ring = call('LPUSH', P .. 'run', lane)
      break
    end
    if stop == 'H' or stop == 'U' or stop == 'F' then park(lane, stop)
    else place_lane(lane, 'R', is_empty and 0 or nil) end
  end
  return out
end
