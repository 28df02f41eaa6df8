#!lua
-- Give a worker the first queued call that fits it. Tokens are asked in order of virtual time.
--   ready:{flavor}                                       zset    tokens by virtual time
--   back:{flavor}:{token}, then calls:{flavor}:{token}   stream  entries: call, memory, exposed
--   call:{id}       hash   queued → leased, or running where a sandbox is ready; owner, attempt
--   held:{worker}   hash   call id → ticket, so that a repeated take finds what it was given
--   session:{id}    hash   the first call of a session binds it to the worker
--   due             zset   when the lease lapses, or the running call is lost
-- ARGV 2 worker, 3 flavor, 4 free memory, 5 exposed calls too ('1'), 6 lease ms, 7 lost grace ms,
-- 8 ticket, 9 idle ms of a session that begins with the call, 10… checkpoint keys of sandboxes that
-- are ready.
-- Answers the id and the fields of the call, or nil.
local TOKENS = 16 -- bounds one take: at most 16 tokens × 2 streams × 8 entries
local ENTRIES = 8
local COST = 1 -- virtual time of one call

local worker, flavor, memory_free, exposed_ok = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local ready = {}
for i = 10, #ARGV do ready[ARGV[i]] = true end

local before = given(worker, ARGV[8])
if before then return before end

local function take(call, stream, entry, token, choice, session)
  redis.call('ZINCRBY', ready_key(flavor), COST, token)
  pull(stream, entry, flavor, token)
  if session and session ~= '' then
    redis.call('HSET', session_key(session), 'worker', worker, 'idle_ms', ARGV[9])
  end
  return lease(call, worker, ARGV[8], ready[choice], ARGV[6], ARGV[7])
end

for _, token in ipairs(redis.call('ZRANGE', ready_key(flavor), 0, TOKENS - 1)) do
  local seen = false
  for _, stream in ipairs({returned_key(flavor, token), calls_key(flavor, token)}) do
    for _, item in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', ENTRIES)) do
      seen = true
      local entry, hint = item[1], item[2]
      local call = hint[2]
      if tonumber(hint[4]) <= memory_free and (hint[6] == '0' or exposed_ok == '1') then
        local f = redis.call('HMGET', call_key(call), 'state', 'entry', 'due_ms', 'choice_key', 'session')
        if f[1] ~= 'queued' or f[2] ~= entry then
          pull(stream, entry, flavor, token) -- the call is gone, or queued elsewhere
        elseif tonumber(f[3]) > now then
          return take(call, stream, entry, token, f[4], f[5])
        end
      end
    end
  end
  if not seen then redis.call('ZREM', ready_key(flavor), token) end
end
return false
