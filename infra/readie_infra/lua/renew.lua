#!lua flags=allow-oom
-- A worker says what it holds, and learns what of that is its own no longer.
--   call:{id}      hash   state, owner, attempt, cancel; due_ms
--   due            zset   a running call that is held is lost so much later
--   session:{id}   hash   state, worker
-- ARGV 2 worker, 3 lost grace ms, 4 how many calls, 5… call, attempt, ms that it may go on; then
-- sessions. Answers {calls to be ended, sessions that are over or another worker's}.
local worker, sessions = ARGV[2], 5 + 3 * ARGV[4]
local ended, closed = {}, {}
for i = 5, sessions - 1, 3 do
  local call = ARGV[i]
  local state = held_state(call, worker, ARGV[i + 1])
  if (state ~= 'leased' and state ~= 'running') or redis.call('HGET', call_key(call), 'cancel') ~= '' then
    table.insert(ended, call)
  elseif state == 'running' then
    set_due(call, now + ARGV[i + 2] + ARGV[3])
  end
end
for i = sessions, #ARGV do
  local s = redis.call('HMGET', session_key(ARGV[i]), 'state', 'worker')
  if s[1] ~= 'open' or s[2] ~= worker then table.insert(closed, ARGV[i]) end
end
return {ended, closed}
