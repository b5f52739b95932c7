-- The end of a record: lane|host|holds. Few are different in a batch, so each is split once; false if
-- it is not such an end.
local places = {}
local function place_of(ending)
  local place = places[ending]
  if place == nil then
    local lane, host, holds = string.match(ending, '^([^|]*)|([^|]*)|([^|]*)$')
    place = lane and { lane = lane, host = host, holds = holds }
    places[ending] = place or false
  end
  return place
end
