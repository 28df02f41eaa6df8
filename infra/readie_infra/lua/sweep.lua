#!lua flags=allow-oom
-- What time does to calls. Any number of gateways may sweep; each case is decided once.
--   due         zset   calls whose time is over: queued → expired; leased → queued, or dead after
--                      too many leases; running → lost, or cancelled where that was asked for
--   call:{id}   hash   the truth; ids without one are dropped
--   sessions    zset   sessions that were idle too long, or whose running call is given up, end
--   calls, back, ready, bell, held, ev, subs, idem, session, dead as in the other steps
-- ARGV 2 how many, 3 most leases, 4 TTL ms, 5… outcomes: expired, lost, cancelled, 8 expired in a
-- busy session, 9 in a session that ended, 10 expired after a run, 11 what workers hold as well ('1').
-- Answers {expired, lost, cancelled, requeued, ended sessions}.
local expired, lost, cancelled, requeued = {}, {}, {}, {}
local held_too = ARGV[11] == '1'
for _, call in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', digits(now), 'LIMIT', 0, ARGV[2])) do
  local f = redis.call('HMGET', call_key(call), 'state', 'attempt', 'cancel', 'flavor', 'token', 'entry',
    'stream', 'session', 'started_ms')
  local state = f[1]
  if state == 'queued' then
    local outcome = f[9] and ARGV[10] or ARGV[5]
    if f[8] and f[8] ~= '' then
      local s = redis.call('HMGET', session_key(f[8]), 'state', 'current')
      if s[1] ~= 'open' then outcome = ARGV[9] elseif s[2] ~= call then outcome = ARGV[8] end
    end
    pull(f[7], f[6], f[4], f[5])
    conclude(call, 'expired', outcome, ARGV[4])
    table.insert(expired, call)
  elseif not held_too and (state == 'leased' or state == 'running') then
    -- Its worker gets the time to say that it has it.
  elseif state == 'leased' and tonumber(f[2]) < tonumber(ARGV[3]) then
    requeue(call)
    table.insert(requeued, call)
  elseif state == 'running' and f[3] ~= '' then
    end_session_of(call, 'a call was cancelled', ARGV[9], ARGV[4])
    conclude(call, 'cancelled', ARGV[7], ARGV[4])
    table.insert(cancelled, call)
  elseif state == 'leased' and (f[8] or '') == '' then
    park(call, f[2] .. ' workers took it, and none came to start it', ARGV[6], ARGV[4])
    table.insert(lost, call)
  elseif state == 'leased' or state == 'running' then
    end_session_of(call, 'a call was lost', ARGV[9], ARGV[4])
    lose(call, ARGV[6], ARGV[4])
    table.insert(lost, call)
  else
    redis.call('ZREM', DUE, call)
    redis.call('PEXPIRE', events_key(call), ARGV[4]) -- of a record that somebody deleted
    redis.call('DEL', subscribers_key(call))
  end
end
local idle = redis.call('ZRANGEBYSCORE', SESSIONS, '-inf', digits(now), 'LIMIT', 0, ARGV[2])
for _, session in ipairs(idle) do
  local idle_ms = redis.call('HGET', session_key(session), 'idle_ms')
  if idle_ms then
    end_session(session, 'it was not used for ' .. idle_ms / 1000 .. ' s', ARGV[9], ARGV[4])
  else
    redis.call('ZREM', SESSIONS, session)
  end
end
return {expired, lost, cancelled, requeued, idle}
