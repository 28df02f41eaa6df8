#!lua flags=no-writes
-- A call at one instant.
--   call:{id}   hash     the fields asked for
--   ev:{id}     stream   the events after a seq
-- ARGV 2 call, 3 first event id, 4 how many events, 5… fields. Answers nil, or {values, events}.
local call = ARGV[2]
local values = redis.call('HMGET', call_key(call), unpack(ARGV, 5))
if not values[1] then return false end
return {values, redis.call('XRANGE', events_key(call), ARGV[3], '+', 'COUNT', ARGV[4])}
