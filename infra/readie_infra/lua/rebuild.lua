#!lua flags=allow-oom
-- Queued calls whose entry is gone (a stream was deleted) are put back: call:{id} is the truth.
-- Those whose session is gone are due at once.
--   due         zset   read from a rank on, a bounded part at a time
--   call:{id} hash, calls, back, ready, bell; session:{id}, calls:session:{id}, ctl
-- ARGV 2 first rank, 3 how many. Answers {next rank, rebuilt ids}; the next rank is 0 at the end.
local from, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local ids = redis.call('ZRANGE', DUE, from, from + count - 1)
local rebuilt = {}
for _, call in ipairs(ids) do
  local f = redis.call('HMGET', call_key(call), 'state', 'entry', 'stream', 'flavor', 'token', 'memory', 'exposed',
    'session')
  if f[1] == 'queued' then
    local session = f[8] and f[8] ~= '' and f[8]
    local s = session and redis.call('HMGET', session_key(session), 'state', 'worker')
    local there = f[3] ~= '' and redis.call('XRANGE', f[3], f[2], f[2])
    if session and s[1] ~= 'open' then
      set_due(call, now) -- it cannot come to its turn any more: the next sweep ends it
    elseif session and f[3] == '' then
      order(s[2], '{"type":"session","session":"' .. session .. '"}') -- the first may be lost
    elseif session and f[3] == session_calls_key(session) then
      if there[1] then
        advance(session)
      else
        line_up(call, session)
        table.insert(rebuilt, call)
      end
    elseif not (there[1] and there[1][2][2] == call) then
      push(call, f[4], f[5], f[6], f[7], false)
      table.insert(rebuilt, call)
    elseif not redis.call('ZSCORE', ready_key(f[4]), f[5]) then
      redis.call('ZADD', ready_key(f[4]), 0, f[5])
      wake(f[4])
      table.insert(rebuilt, call)
    end
  end
end
return {#ids == count and from + count or 0, rebuilt}
