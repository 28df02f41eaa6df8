#!lua flags=allow-oom
-- A gateway waits for a call that has not ended yet.
--   call:{id} hash, subs:{id} set
-- ARGV 2 call, 3 gateway. Answers 1; 0 when there is nothing to wait for.
if redis.call('HGET', call_key(ARGV[2]), 'finished_ms') ~= '0' then return 0 end
redis.call('SADD', subscribers_key(ARGV[2]), ARGV[3])
return 1
