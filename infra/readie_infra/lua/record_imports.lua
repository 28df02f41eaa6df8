#!lua
-- One gateway's latest calls, by what they import; a set that the day has is counted, however full it is.
--   imports:{day}   hash TTL, a JSON list of module names → how many calls had it
-- ARGV 2 day, 3 TTL ms, 4 most sets of a day, 5… set, count. Answers how many sets found no room.
local day, limit, refused = imports_key(ARGV[2]), tonumber(ARGV[4]), 0
local room = limit - redis.call('HLEN', day)
for i = 5, #ARGV, 2 do
  local known = redis.call('HEXISTS', day, ARGV[i]) == 1
  if known or room > 0 then
    redis.call('HINCRBY', day, ARGV[i], ARGV[i + 1])
    if not known then room = room - 1 end
  else
    refused = refused + 1
  end
end
redis.call('PEXPIRE', day, ARGV[3])
return refused
