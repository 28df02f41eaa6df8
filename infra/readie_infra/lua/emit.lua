#!lua
-- Append events of a call that this worker holds, and ring.
--   call:{id}   hash     seq counts events; batch is the last one written, so a repeat adds nothing
--   ev:{id}     stream   one entry an event
--   subs:{id}, events:{gateway}   doorbells
-- ARGV 2 call, 3 owner, 4 attempt, 5 batch, 6… type, data. Answers 1; 0 when the call is not this
-- worker's (nothing is written), or when somebody wants it cancelled.
local call = ARGV[2]
local state = held_state(call, ARGV[3], ARGV[4])
if state ~= 'leased' and state ~= 'running' then return 0 end
local f = redis.call('HMGET', call_key(call), 'seq', 'batch', 'cancel')
if f[2] ~= ARGV[5] then
  local seq = tonumber(f[1])
  for i = 6, #ARGV, 2 do
    seq = seq + 1
    append(call, seq, ARGV[i], ARGV[i + 1])
  end
  redis.call('HSET', call_key(call), 'seq', digits(seq), 'batch', ARGV[5])
  ring(call)
end
return f[3] == '' and 1 or 0
