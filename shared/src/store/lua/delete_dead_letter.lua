-- Deletes a dead letter for good. ARGV: 1 id. Returns: 'deleted' | 'none'.
local id = ARGV[1]
if not call('ZSCORE', P .. 'x', id) then return 'none' end
open_drain()
local r = get_record(id)
call('ZREM', P .. 'x', id)
call('UNLINK', P .. 'r:' .. id)
if r then
  drop_envelope(id, r)
  r.st = 'c'
  put_record(id, r)
  mark_gone(id)
end
return 'deleted'
