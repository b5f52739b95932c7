-- What publishing does to a lane's settings: a queue exists from its first message on, a flow key
-- takes the limits the message names unless they are pinned.
local USED_STEP_MS = 3600000

local function touch_lane(lane, cap, rate, period)
  local k = kind(lane)
  if k == 'h' then return end
  local c = settings(lane)
  local changed = not c.stored or now - c.used > USED_STEP_MS
  if not c.stored then c.created = now end
  if k == 'f' then
    if not c.pin_cap and c.cap ~= cap then c.cap, changed = cap, true end
    if not c.pin_rate and (c.rate ~= rate or c.period ~= period) then
      c.rate, c.period, changed = rate, period, true
    end
  elseif not c.stored then
    c.cap = 1
  end
  if changed then
    c.used = now
    put_settings(lane, c)
    wake_lane(lane)
  end
end

-- A write that a full store refuses and that creates nothing: nothing was applied before it.
local function refuse_when_full() call('SETRANGE', KEYS[1], '0', '') end
