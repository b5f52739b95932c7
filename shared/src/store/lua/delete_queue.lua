-- Deletes a queue: its waiting messages go to the trash, which the sweeper cancels; its leased,
-- holding and delayed ones finish under the default settings. ARGV: 1 lane. Returns: 'ok'.
local lane = ARGV[1]
open_drain()
if waiting(lane) > 0 then
  -- A name leaves the trash only with its list, so this one is free.
  local name = 'tl:' .. NOW .. ':' .. text(call('LLEN', P .. 'trash')) .. ':' .. lane
  call('RENAME', P .. 'ln:' .. lane, P .. name)
  call('RPUSH', P .. 'trash', name)
end
call('HDEL', P .. 'cfg', lane)
call('HDEL', P .. 'ch', lane)
settings_of[lane] = nil
wake_lane(lane)
return 'ok'
