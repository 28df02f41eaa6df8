#!lua flags=allow-oom
-- The end of a run that its caller allowed to be repeated: back to the queue, at the head.
--   call:{id}   hash     reruns counts down what is allowed; state, owner, queue_left_ms
--   ev:{id}     stream   last logs of the run that ended
--   subs:{id}, events:{gateway}   doorbells
--   held:{worker} hash, back:{flavor}:{token} stream, ready, bell, due
-- ARGV 2 call, 3 owner, 4 attempt, 5… type, data of last events. Answers 1; 0 when the call is not
-- this worker's, or may not run again: nothing is written then.
local call = ARGV[2]
local state = held_state(call, ARGV[3], ARGV[4])
if (state ~= 'running' and state ~= 'leased') or not rerun(call) then return 0 end
for i = 5, #ARGV, 2 do
  append(call, redis.call('HINCRBY', call_key(call), 'seq', 1), ARGV[i], ARGV[i + 1])
end
ring(call)
return 1
