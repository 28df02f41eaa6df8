#!lua flags=allow-oom
-- The end of a call, told by who holds it. May be repeated: the same end is accepted again.
--   call:{id}   hash     terminal state, outcome, result or its blob; TTL
--   ev:{id}     stream   last logs, then result; TTL
--   subs, events:{gateway}, held:{worker}, due, idem
--   dead:{flavor}   stream   where it is parked; its record then has no TTL, and keeps the payload
--   session:{id} hash, calls:session:{id}, sessions, ctl   where the call's sandbox did not survive it
-- ARGV 2 call, 3 owner, 4 attempt, 5 state, 6 outcome, 7 result, 8 result blob, 9 TTL ms,
-- 10 why its session ends with it or '', 11 outcome of calls that wait in that, 12 why it is
-- parked, where its state is dead, 13… type, data of last events. Answers 1 or 0.
local call, final = ARGV[2], ARGV[5]
local state = held_state(call, ARGV[3], ARGV[4])
if state == final then return 1 end
if redis.call('EXISTS', call_key(call)) == 0 then redis.call('HDEL', held_key(ARGV[3]), call) end
local started = state == 'running'
if not started and not (state == 'leased' and final ~= 'succeeded') then return 0 end
for i = 13, #ARGV, 2 do
  append(call, redis.call('HINCRBY', call_key(call), 'seq', 1), ARGV[i], ARGV[i + 1])
end
if ARGV[7] ~= '' then redis.call('HSET', call_key(call), 'result', ARGV[7]) end
if ARGV[8] ~= '' then redis.call('HSET', call_key(call), 'result_blob', ARGV[8]) end
if ARGV[10] ~= '' then end_session_of(call, ARGV[10], ARGV[11], ARGV[9]) end
if final == 'dead' then
  park(call, ARGV[12], ARGV[6], ARGV[9])
  return 1
end
conclude(call, final, ARGV[6], ARGV[9], ARGV[8] == '' and ARGV[7] or nil)
return 1
