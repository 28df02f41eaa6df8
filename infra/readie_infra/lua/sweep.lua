#!lua flags=allow-oom
-- What time does to calls. Any number of gateways may sweep; each case is decided once.
--   due         zset   calls whose time is over: queued → expired; leased → queued, or lost after
--                      too many leases; running → lost, or cancelled where that was asked for
--   call:{id}   hash   the truth; ids without one are dropped
--   calls, back, ready, bell, held, ev, subs, idem as in the other steps
-- ARGV 2 how many, 3 most leases, 4 TTL ms, 5 6 7 outcomes: expired, lost, cancelled.
-- Answers {expired, lost, cancelled, requeued}.
local expired, lost, cancelled, requeued = {}, {}, {}, {}
for _, call in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', digits(now), 'LIMIT', 0, ARGV[2])) do
  local f = redis.call('HMGET', call_key(call), 'state', 'attempt', 'cancel', 'flavor', 'token', 'entry', 'stream')
  local state = f[1]
  if state == 'queued' then
    pull(f[7], f[6], f[4], f[5])
    conclude(call, 'expired', ARGV[5], ARGV[4])
    table.insert(expired, call)
  elseif state == 'leased' and tonumber(f[2]) < tonumber(ARGV[3]) then
    requeue(call)
    table.insert(requeued, call)
  elseif state == 'running' and f[3] ~= '' then
    conclude(call, 'cancelled', ARGV[7], ARGV[4])
    table.insert(cancelled, call)
  elseif state == 'leased' or state == 'running' then
    conclude(call, 'lost', ARGV[6], ARGV[4])
    table.insert(lost, call)
  else
    redis.call('ZREM', DUE, call)
  end
end
return {expired, lost, cancelled, requeued}
