#!lua flags=allow-oom
-- Somebody wants a session to end, or its sandbox has died while it was idle.
--   session:{id}           hash     becomes the tombstone
--   calls:session:{id}     stream   its waiting calls fail
--   sessions zset, ctl:{worker}; a call that runs is cancelled as in cancel
-- ARGV 2 session, 3 worker whose it must be or '', 4 reason, 5 outcome of calls that have not run,
-- 6 TTL ms, 7 grace ms. Answers 1; 0 when it has ended before, or is not that worker's.
local session = ARGV[2]
local s = redis.call('HMGET', session_key(session), 'worker', 'current')
if ARGV[3] ~= '' and s[1] ~= ARGV[3] then return 0 end
if not end_session(session, ARGV[4], ARGV[5], ARGV[6]) then return 0 end
if s[2] ~= '' then
  local f = redis.call('HMGET', call_key(s[2]), 'state', 'due_ms', 'owner')
  if f[1] == 'running' then
    redis.call('HSET', call_key(s[2]), 'cancel', ARGV[4])
    set_due(s[2], math.min(tonumber(f[2]), now + ARGV[7]))
    order(f[3], cancel_order(s[2]))
  end
end
return 1
