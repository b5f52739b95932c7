-- Deletes a queue: its waiting messages go to the trash, which the sweeper cancels; its leased,
-- holding and delayed ones finish under the default settings. ARGV: 1 lane. Returns: 'ok'.
local lane = ARGV[1]
open_drain()
if waiting(lane) > 0 then
  local name = 'tl:' .. text(now) .. ':' .. TIME[2] .. ':' .. lane
  if call('EXISTS', P .. name) == 0 then
    call('RENAME', P .. 'ln:' .. lane, P .. name)
    call('RPUSH', P .. 'trash', name)
  end
end
call('HDEL', P .. 'cfg', lane)
settings_of[lane] = nil
wake_lane(lane)
return 'ok'
