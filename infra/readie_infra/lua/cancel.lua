#!lua flags=allow-oom
-- Somebody wants the call to end. What has not started ends now; a running call's worker is told.
--   call:{id}      hash     cancelled, or cancel = reason
--   ctl:{worker}   stream   order: cancel
--   the queue entry, due, ev, subs, events:{gateway}, held, idem as in finish
-- ARGV 2 call, 3 reason, 4 outcome, 5 TTL ms, 6 grace ms, 7 the order. Answers the state, or nil.
local call = ARGV[2]
local f = redis.call('HMGET', call_key(call), 'state', 'owner', 'entry', 'flavor', 'token', 'due_ms', 'stream', 'cancel')
local state, owner = f[1], f[2]
if state == 'queued' or state == 'leased' then
  if state == 'queued' then pull(f[7], f[3], f[4], f[5]) else order(owner, ARGV[7]) end
  redis.call('HSET', call_key(call), 'cancel', ARGV[3])
  conclude(call, 'cancelled', ARGV[4], ARGV[5])
  return 'cancelled'
end
if state == 'running' and f[8] == '' then
  redis.call('HSET', call_key(call), 'cancel', ARGV[3])
  set_due(call, math.min(tonumber(f[6]), now + ARGV[6]))
  order(owner, ARGV[7])
end
return state
