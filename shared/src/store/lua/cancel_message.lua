-- cancel: ends a message that is not leased; asks the holder of a leased one to drop it.
-- ARGV: 1 id, 2 event.
-- Returns: 'cancelled' | 'requested' (its worker learns it at the next renew) | 'none' (absent or
--   already at its end). A repeat is safe.
local id = ARGV[1]
local r = get_record(id)
if not r or not string.find(r.st, '^[wdhl]$') then return 'none' end
open_drain()
if r.st == 'l' then
  if not has_flag(r, 'c') then
    r.flags = r.flags .. 'c'
    put_record(id, r)
    event(id, 'q', ARGV[2])
    log_events()
  end
  return 'requested'
end
finish(id, r, 'c', '', {})
event(id, 'c', ARGV[2])
log_events()
return 'cancelled'
