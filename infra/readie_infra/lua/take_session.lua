#!lua
-- Give a session's worker the session's next call. At most one of its calls is held at a time.
--   session:{id}           hash     worker, current
--   calls:session:{id}     stream   the calls that wait, in order
--   call:{id} hash, held:{worker} hash, due zset   as in take
-- ARGV 2 worker, 3 session, 4 its sandbox is ready ('1'), 5 lease ms, 6 lost grace ms, 7 ticket.
-- Answers as take does.
local worker, session = ARGV[2], ARGV[3]
local before = given(worker, ARGV[7])
if before then return before end
local s = redis.call('HMGET', session_key(session), 'state', 'worker', 'current', 'flavor', 'token')
if s[1] ~= 'open' or s[2] ~= worker then return false end
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
