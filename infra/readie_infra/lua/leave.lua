#!lua flags=allow-oom
-- A worker is gone. What it held but had not started is queued again, and so is what ran and may
-- run again; other calls that ran are lost.
--   session:{id}   hash   its sessions end; one whose first call had not started goes elsewhere
--   worker:{boot}, beat:{boot}, ctl:{boot}, held:{boot} deleted; workers set
-- ARGV 2 boot, 3 outcome of lost calls, 4 TTL ms, 5 why its sessions end, 6 outcome of calls that
-- wait in those. Answers {requeued, lost}.
local boot = ARGV[2]
for _, session in ipairs(redis.call('ZRANGE', SESSIONS, 0, -1)) do -- their number is bounded
  local s = redis.call('HMGET', session_key(session), 'worker', 'served', 'current')
  if s[1] == boot then
    local untouched = s[2] == '0' and redis.call('HGET', call_key(s[3]), 'state') ~= 'running'
    if not untouched then
      end_session(session, ARGV[5], ARGV[6], ARGV[4])
    elseif s[3] == '' then
      redis.call('HSET', session_key(session), 'worker', '')
      advance(session)
    end
  end
end
local requeued, lost = {}, {}
for _, call in ipairs(redis.call('HKEYS', held_key(boot))) do
  local f = redis.call('HMGET', call_key(call), 'state', 'owner')
  if f[2] == boot and f[1] == 'leased' then
    requeue(call)
    table.insert(requeued, call)
  elseif f[2] == boot and f[1] == 'running' and rerun(call) then
    table.insert(requeued, call)
  elseif f[2] == boot and f[1] == 'running' then
    lose(call, ARGV[3], ARGV[4])
    table.insert(lost, call)
  end
end
redis.call('DEL', worker_key(boot), beat_key(boot), control_key(boot), held_key(boot))
redis.call('SREM', WORKERS, boot)
return {requeued, lost}
