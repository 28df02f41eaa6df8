#!lua
-- Accept a call, once per idempotency key. Refused as a whole when memory is full.
--   call:{id}           hash    the record; no TTL until the call ends
--   idem:{token}:{key}  string  call id, space, body hash; TTL longer than the call can last
--   ev:{id}             stream  1-0 accepted
--   calls:{flavor}:{token}, ready:{flavor}, bell:{flavor}   the queue
--   due                 zset    when the call expires
--   recent:{token}      zset    ids by creation; bounded, TTL
--   subs:{id}           set     the gateway that waits
--   session:{id} hash, calls:session:{id} stream, sessions zset, ctl   for a call of a session
-- ARGV 2 call, 3 token, 4 flavor, 5 idempotency key or '', 6 body hash, 7 gateway or '', 8 queue
-- limit, 9 queue timeout ms, 10 call timeout ms, 11 idempotency TTL ms, 12 memory, 13 exposed,
-- 14 data of the accepted event, 15 session or '', 16 how many calls may wait in it, 17… fields and
-- values. Answers {1, call} created; {0, call} known; {-1, call} conflict; {-2, length} full;
-- {-3, session} unknown; {-4, reason} its session has ended; {-5, length} its session is busy.
local RECENT = 1000 -- ids
local RECENT_TTL_MS = 86400000 -- a day
local AT_ONCE_MS = 250 -- what a worker that is free needs to come for a call that does not wait

local call, token, flavor, key, gateway = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]
local session = ARGV[15]
local at_once = tonumber(ARGV[9]) <= 1

local function subscribe(to)
  if gateway ~= '' and redis.call('HGET', call_key(to), 'finished_ms') == '0' then
    redis.call('SADD', subscribers_key(to), gateway)
  end
end

if key ~= '' then
  local known = redis.call('GET', idempotency_key(token, key))
  if known then
    local id, hash = string.match(known, '^(%S+) (.*)$')
    if redis.call('EXISTS', call_key(id)) == 1 then
      if hash ~= ARGV[6] then return {-1, id} end
      subscribe(id)
      return {id == call and 1 or 0, id}
    end
  end
end
if redis.call('EXISTS', call_key(call)) == 1 then return {1, call} end -- asked twice, answer lost

if session ~= '' then
  local s = redis.call('HMGET', session_key(session), 'state', 'token', 'reason', 'current')
  if s[2] ~= token then return {-3, session} end -- another token's is as unknown as none
  if s[1] ~= 'open' then return {-4, s[3]} end
  local waiting = redis.call('XLEN', session_calls_key(session))
  if waiting >= tonumber(ARGV[16]) or (at_once and (waiting > 0 or s[4] ~= '')) then
    return {-5, waiting}
  end
end

local length = redis.call('XLEN', calls_key(flavor, token)) + redis.call('XLEN', returned_key(flavor, token))
if length >= tonumber(ARGV[8]) then return {-2, length} end

redis.call('HSET', call_key(call), unpack(ARGV, 17))
redis.call('HSET', call_key(call), 'state', 'queued', 'owner', '', 'attempt', '0', 'seq', '1',
  'cancel', '', 'created_ms', digits(now), 'created_us', digits(now_us), 'finished_ms', '0',
  'idem', key, 'memory', ARGV[12], 'timeout_ms', ARGV[10])
if key ~= '' then
  redis.call('SET', idempotency_key(token, key), call .. ' ' .. ARGV[6], 'PX', ARGV[11])
end
append(call, 1, 'accepted', ARGV[14])
set_due(call, now + (at_once and AT_ONCE_MS or ARGV[9]))
redis.call('ZADD', recent_key(token), digits(now), call)
redis.call('ZREMRANGEBYRANK', recent_key(token), 0, -RECENT - 1)
redis.call('PEXPIRE', recent_key(token), RECENT_TTL_MS)
subscribe(call)
if session ~= '' then line_up(call, session) else push(call, flavor, token, ARGV[12], ARGV[13], false) end
return {1, call}
