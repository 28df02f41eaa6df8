#!lua flags=allow-oom
-- A worker is alive: its advertisement, its counter, and a longer life for both.
--   worker:{boot} hash TTL, beat:{boot} counter, ctl:{boot} stream with TTLs of their own, workers set
-- ARGV 2 boot, 3 TTL ms, 4… fields and values. Answers the counter.
local boot, ttl = ARGV[2], ARGV[3]
redis.call('HSET', worker_key(boot), unpack(ARGV, 4))
redis.call('PEXPIRE', worker_key(boot), ttl)
redis.call('SADD', WORKERS, boot)
redis.call('PEXPIRE', control_key(boot), DOORBELL_TTL_MS)
local beats = redis.call('INCR', beat_key(boot))
-- Not the record's TTL: a counter that ended during the silence would look like another beat.
redis.call('PEXPIRE', beat_key(boot), DOORBELL_TTL_MS)
return beats
