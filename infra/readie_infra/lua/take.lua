#!lua
-- Give a worker the first queued call that fits it. Tokens are asked in order of virtual time.
--   ready:{flavor}                                       zset    tokens by virtual time
--   back:{flavor}:{token}, then calls:{flavor}:{token}   stream  entries: call, memory, exposed
--   call:{id}       hash   queued → leased, or running where a sandbox is ready; owner, attempt
--   held:{worker}   hash   call id → ticket, so that a repeated take finds what it was given
--   due             zset   when the lease lapses, or the running call is lost
-- ARGV 2 worker, 3 flavor, 4 free memory, 5 exposed calls too ('1'), 6 lease ms, 7 lost grace ms,
-- 8 ticket, 9… checkpoint keys of sandboxes that are ready.
-- Answers the id and the fields of the call, or nil.
local TOKENS = 16 -- bounds one take: at most 16 tokens × 2 streams × 8 entries
local ENTRIES = 8
local COST = 1 -- virtual time of one call

local worker, flavor, memory_free, exposed_ok = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local ready = {}
for i = 9, #ARGV do ready[ARGV[i]] = true end

local held = redis.call('HGETALL', held_key(worker)) -- at most one call a slot
for i = 1, #held, 2 do
  if held[i + 1] == ARGV[8] then return {held[i], redis.call('HGETALL', call_key(held[i]))} end
end

local function take(call, stream, entry, token, due, choice)
  local truth = call_key(call)
  local f = redis.call('HMGET', truth, 'timeout_ms', 'created_us')
  local at = digits(now)
  redis.call('ZINCRBY', ready_key(flavor), COST, token)
  pull(stream, entry, flavor, token)
  redis.call('HINCRBY', truth, 'attempt', 1)
  redis.call('HSET', truth, 'owner', worker, 'taken_ms', at, 'entry', '',
    'queue_us', digits(now_us - f[2]), 'queue_left_ms', digits(due - now))
  if ready[choice] then
    redis.call('HSET', truth, 'state', 'running', 'started_ms', at)
    set_due(call, now + f[1] + ARGV[7])
  else
    redis.call('HSET', truth, 'state', 'leased')
    set_due(call, now + ARGV[6])
  end
  redis.call('HSET', held_key(worker), call, ARGV[8])
  return {call, redis.call('HGETALL', truth)}
end

for _, token in ipairs(redis.call('ZRANGE', ready_key(flavor), 0, TOKENS - 1)) do
  local seen = false
  for _, stream in ipairs({returned_key(flavor, token), calls_key(flavor, token)}) do
    for _, item in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', ENTRIES)) do
      seen = true
      local entry, hint = item[1], item[2]
      local call = hint[2]
      if tonumber(hint[4]) <= memory_free and (hint[6] == '0' or exposed_ok == '1') then
        local f = redis.call('HMGET', call_key(call), 'state', 'entry', 'due_ms', 'choice_key')
        if f[1] ~= 'queued' or f[2] ~= entry then
          pull(stream, entry, flavor, token) -- the call is gone, or queued elsewhere
        elseif tonumber(f[3]) > now then
          return take(call, stream, entry, token, tonumber(f[3]), f[4])
        end
      end
    end
  end
  if not seen then redis.call('ZREM', ready_key(flavor), token) end
end
return false
