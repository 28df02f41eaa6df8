#!lua flags=allow-oom
-- Give a worker the first queued call that fits it. Tokens are asked in order of virtual time.
--   ready:{flavor}                                       zset    tokens by virtual time
--   back:{flavor}:{token}, then calls:{flavor}:{token}   stream  entries: call, memory, exposed
--   call:{id}       hash   queued → leased, or running where a sandbox is ready; owner, attempt;
--                          kept_for, kept_until: the worker that makes room for it, once
--   held:{worker}   hash   call id → ticket, so that a repeated take finds what it was given
--   session:{id}    hash   the first call of a session binds it to the worker
--   due             zset   when the lease lapses, or the running call is lost
-- ARGV 2 worker, 3 flavor, 4 free memory, 5 exposed calls too ('1'), 6 lease ms, 7 lost grace ms,
-- 8 ticket, 9 idle ms of a session that begins with the call, 10 all its memory, 11 a flavor whose
-- calls it takes when nobody else does or '', 12 after how many ms in the queue that is, 13 after how
-- many a worker makes room for a call, 14 for how many, 15… checkpoint keys of sandboxes that are
-- ready.
-- Answers the id and the fields of the call, or nil.
local TOKENS = 16 -- bounds one take: at most 16 tokens × 2 streams × 8 entries, for each flavor
local ENTRIES = 8
local COST = 1 -- virtual time of one call; half of that for each step of its priority

local worker, memory_free, exposed_ok = ARGV[2], tonumber(ARGV[4]), ARGV[5]
local memory, spill_ms, skipped_ms = tonumber(ARGV[10]), tonumber(ARGV[12]), tonumber(ARGV[13])
local ready = {}
for i = 15, #ARGV do ready[ARGV[i]] = true end

local before = given(worker, ARGV[8])
if before then return before end

local function waited_ms(entry) return now - string.match(entry, '^%d+') end

local function take(call, stream, entry, flavor, token, f)
  redis.call('ZINCRBY', ready_key(flavor), COST / 2 ^ (f[6] or 0), token)
  pull(stream, entry, flavor, token)
  if f[5] and f[5] ~= '' then
    redis.call('HSET', session_key(f[5]), 'worker', worker, 'idle_ms', ARGV[9])
  end
  return lease(call, worker, ARGV[8], ready[f[4]], ARGV[6], ARGV[7])
end

-- Its record may have been deleted; then a sweep ends the call.
local function in_open_session(session)
  return (session or '') == '' or redis.call('EXISTS', session_key(session)) == 1
end

-- A call that does not fit now, but would: does this worker wait for it, so that smaller ones do not
-- pass it by for ever? One worker does, once, for a bounded time.
local function makes_room(call, entry, needed)
  if needed > memory or waited_ms(entry) < skipped_ms then return false end
  local f = redis.call('HMGET', call_key(call), 'state', 'entry', 'kept_for', 'kept_until')
  if f[1] ~= 'queued' or f[2] ~= entry then return false end
  if f[3] then return f[3] == worker and now < tonumber(f[4]) end
  redis.call('HSET', call_key(call), 'kept_for', worker, 'kept_until', digits(now + ARGV[14]))
  return true
end

-- A token whose calls do not fit saves up no share: it would hold up the others later, and so would
-- whoever becomes active meanwhile, at the smallest virtual time of all.
local function keep_up(flavor, passed, time)
  for _, token in ipairs(passed) do redis.call('ZADD', ready_key(flavor), 'XX', 'GT', time, token) end
end

-- Answers what was taken, or true when the worker has to stay free.
local function look(flavor, spilled)
  local passed = {}
  local tokens = redis.call('ZRANGE', ready_key(flavor), 0, TOKENS - 1, 'WITHSCORES')
  for i = 1, #tokens, 2 do
    local token, seen = tokens[i], false
    for _, stream in ipairs({returned_key(flavor, token), calls_key(flavor, token)}) do
      for _, item in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', ENTRIES)) do
        seen = true
        local entry, hint = item[1], item[2]
        local call, needed = hint[2], tonumber(hint[4])
        local may = hint[6] == '0' or exposed_ok == '1'
        if may and spilled then may = waited_ms(entry) >= spill_ms end
        if may and needed <= memory_free then
          local f = redis.call('HMGET', call_key(call), 'state', 'entry', 'due_ms', 'choice_key', 'session',
            'priority', 'flavor_only')
          if f[1] ~= 'queued' or f[2] ~= entry then
            pull(stream, entry, flavor, token) -- the call is gone, or queued elsewhere
          elseif tonumber(f[3]) > now and not (spilled and f[7] == '1') and in_open_session(f[5]) then
            keep_up(flavor, passed, tokens[i + 1])
            return take(call, stream, entry, flavor, token, f)
          end
        elseif may and not spilled and makes_room(call, entry, needed) then
          return true
        end
      end
    end
    if seen then table.insert(passed, token) else redis.call('ZREM', ready_key(flavor), token) end
  end
  return false
end

local found = look(ARGV[3], false)
if not found and ARGV[11] ~= '' then found = look(ARGV[11], true) end
return found ~= true and found
