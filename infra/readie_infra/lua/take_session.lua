#!lua flags=allow-oom
-- Give a session's worker the session's next call. At most one of its calls is held at a time.
--   session:{id}           hash     worker, current
--   calls:session:{id}     stream   the calls that wait, in order
--   call:{id} hash, held:{worker} hash, due zset   as in take
--   A session that has served calls ends here when its sandbox is not there any more.
-- ARGV 2 worker, 3 session, 4 its sandbox is ready ('1'), 5 lease ms, 6 lost grace ms, 7 ticket, 8 why
-- the session ends then, 9 outcome of its waiting calls, 10 TTL ms. Answers as take does.
local worker, session = ARGV[2], ARGV[3]
local before = given(worker, ARGV[7])
if before then return before end
local s = redis.call('HMGET', session_key(session), 'state', 'worker', 'current', 'flavor', 'token',
  'served')
if s[1] ~= 'open' or s[2] ~= worker then return false end
if ARGV[4] ~= '1' and s[6] ~= '0' and s[3] == '' then
  end_session(session, ARGV[8], ARGV[9], ARGV[10])
  return false
end
local call, entry = s[3], ''
if call == '' then
  call, entry = first_in_line(session, s[4], s[5])
  if not call then
    advance(session)
    return false
  end
  pull(session_calls_key(session), entry, s[4], s[5])
  redis.call('HSET', session_key(session), 'current', call)
else
  local f = redis.call('HMGET', call_key(call), 'state', 'stream')
  if f[1] ~= 'queued' or f[2] ~= '' then return false end -- it is held already
end
return lease(call, worker, ARGV[7], ARGV[4] == '1', ARGV[5], ARGV[6])
