#!lua flags=allow-oom
-- A parked call is not wanted any more; with it go its payload and, once it has expired, its blobs.
--   dead:{flavor} stream, call:{id} hash
-- ARGV 2 call, 3 TTL ms. Answers 1; 0 when it is not parked.
local call = ARGV[2]
local f = redis.call('HMGET', call_key(call), 'state', 'dead_entry', 'flavor')
if f[1] ~= 'dead' or redis.call('XDEL', dead_key(f[3]), f[2]) == 0 then return 0 end
unpark(call, ARGV[3])
return 1
