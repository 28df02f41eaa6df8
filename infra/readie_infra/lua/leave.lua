#!lua flags=allow-oom
-- A worker is gone. What it held but had not started is queued again; what ran is lost.
--   worker:{boot}, beat:{boot}, ctl:{boot}, held:{boot} deleted; workers set
-- ARGV 2 boot, 3 outcome of lost calls, 4 TTL ms. Answers {requeued, lost}.
local boot = ARGV[2]
local requeued, lost = {}, {}
for _, call in ipairs(redis.call('HKEYS', held_key(boot))) do
  local f = redis.call('HMGET', call_key(call), 'state', 'owner')
  if f[2] == boot and f[1] == 'leased' then
    requeue(call)
    table.insert(requeued, call)
  elseif f[2] == boot and f[1] == 'running' then
    conclude(call, 'lost', ARGV[3], ARGV[4])
    table.insert(lost, call)
  end
end
redis.call('DEL', worker_key(boot), beat_key(boot), control_key(boot), held_key(boot))
redis.call('SREM', WORKERS, boot)
return {requeued, lost}
