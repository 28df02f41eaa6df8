#!lua flags=allow-oom
-- The fence before GO: leased → running, only for who holds the lease. May be repeated.
--   call:{id}   hash   state, started_ms
--   due         zset   when the running call is lost
-- ARGV 2 call, 3 owner, 4 attempt, 5 timeout ms, 6 lost grace ms. Answers 1 or 0.
local call = ARGV[2]
local state = held_state(call, ARGV[3], ARGV[4])
if state == 'running' then return 1 end
if state ~= 'leased' then return 0 end
redis.call('HSET', call_key(call), 'state', 'running', 'started_ms', digits(now))
set_due(call, now + ARGV[5] + ARGV[6])
return 1
