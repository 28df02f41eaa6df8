#!lua flags=no-writes
-- A session at one instant, open or ended.
--   session:{id} hash, calls:session:{id} stream
-- ARGV 2 session. Answers {fields and values, calls that wait}; no fields when it is unknown.
return {redis.call('HGETALL', session_key(ARGV[2])), redis.call('XLEN', session_calls_key(ARGV[2]))}
