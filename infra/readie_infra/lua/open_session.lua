#!lua
-- Make a session, without a worker until its first call is taken. May be repeated.
--   session:{id}   hash   the record
--   sessions       zset   when it is idle too long
-- ARGV 2 session, 3 idle ms, 4 how many sessions there may be, 5… fields and values.
-- Answers 1; 0 when there are as many already.
local session = ARGV[2]
if redis.call('EXISTS', session_key(session)) == 1 then return 1 end
if redis.call('ZCARD', SESSIONS) >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', session_key(session), unpack(ARGV, 5))
redis.call('HSET', session_key(session), 'state', 'open', 'worker', '', 'current', '', 'served', '0',
  'opened_ms', digits(now), 'used_ms', digits(now), 'ended_ms', '0', 'reason', '', 'idle_ms', ARGV[3])
redis.call('ZADD', SESSIONS, digits(now + ARGV[3]), session)
return 1
