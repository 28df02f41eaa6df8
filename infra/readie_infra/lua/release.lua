#!lua flags=allow-oom
-- A worker hands back what it has not started: leased → queued, at the head.
--   call:{id} hash, held:{worker} hash, back:{flavor}:{token} stream, ready, bell, due
-- ARGV 2 call, 3 owner, 4 attempt, 5 reason. Answers 1 or 0.
local call = ARGV[2]
if held_state(call, ARGV[3], ARGV[4]) ~= 'leased' then return 0 end
redis.call('HSET', call_key(call), 'released', ARGV[5])
requeue(call)
return 1
