-- Forgets a flow key that nobody used for a while. ARGV: 1 lane, 2 unused for ms.
-- Returns: 1 if it was forgotten, else 0.
local lane = ARGV[1]
local c = settings(lane)
if kind(lane) ~= 'f' or not c.stored or now - c.used < number(ARGV[2], 'unused') then return 0 end
if c.paused or c.pin_cap or c.pin_rate or waiting(lane) > 0 or in_flight(lane) > 0 then return 0 end
open_drain()
call('HDEL', P .. 'cfg', lane)
call('HDEL', P .. 'win', lane)
return 1
