#!lua flags=no-writes
-- Every worker that has not left, and how often it has beaten.
--   workers set, beat:{boot} counter (gone when its TTL is over)
-- Answers {boot, beats or 0} each.
local pulses = {}
for _, boot in ipairs(redis.call('SMEMBERS', WORKERS)) do
  table.insert(pulses, {boot, tonumber(redis.call('GET', beat_key(boot)) or '0')})
end
return pulses
