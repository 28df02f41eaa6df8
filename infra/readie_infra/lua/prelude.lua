-- Put before every step by the loader. ARGV[1] is the key prefix; the key names are those of
-- readie_wire.keys, and a test compares them. Durations come from outside, the clock is the server's.
local PREFIX = ARGV[1]

local function call_key(call) return PREFIX .. 'call:' .. call end
local function events_key(call) return PREFIX .. 'ev:' .. call end
local function subscribers_key(call) return PREFIX .. 'subs:' .. call end
local function calls_key(flavor, token) return PREFIX .. 'calls:' .. flavor .. ':' .. token end
local function returned_key(flavor, token) return PREFIX .. 'back:' .. flavor .. ':' .. token end
local function ready_key(flavor) return PREFIX .. 'ready:' .. flavor end
local function bell_key(flavor) return PREFIX .. 'bell:' .. flavor end
local function doorbell_key(gateway) return PREFIX .. 'events:' .. gateway end
local function control_key(worker) return PREFIX .. 'ctl:' .. worker end
local function held_key(worker) return PREFIX .. 'held:' .. worker end
local function worker_key(worker) return PREFIX .. 'worker:' .. worker end
local function beat_key(worker) return PREFIX .. 'beat:' .. worker end
local function recent_key(token) return PREFIX .. 'recent:' .. token end
local function idempotency_key(token, key) return PREFIX .. 'idem:' .. token .. ':' .. key end
local DUE = PREFIX .. 'due'
local WORKERS = PREFIX .. 'workers'

local BELLS = 8 -- entries; a bell only says "look", one would do
local DOORBELLS = 10000 -- entries; a gateway that lost some finds its calls by looking
local ORDERS = 1000 -- entries; more orders than a worker has calls
local BELL_TTL_MS = 86400000 -- a day; bells of flavors nobody uses any more end by themselves
local DOORBELL_TTL_MS = 600000 -- 10 min; doorbells and orders for the dead end by themselves

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- ms
local now_us = clock[1] * 1000000 + clock[2]

-- Numbers of more than 14 digits must not go through tostring.
local function digits(number) return string.format('%.0f', number) end

local function wake(flavor)
  redis.call('XADD', bell_key(flavor), 'MAXLEN', BELLS, '*', 'r', '1')
  redis.call('PEXPIRE', bell_key(flavor), BELL_TTL_MS)
end

-- Tell every gateway that waits for the call to look at it.
local function ring(call)
  for _, gateway in ipairs(redis.call('SMEMBERS', subscribers_key(call))) do
    local bell = doorbell_key(gateway)
    redis.call('XADD', bell, 'MAXLEN', '~', DOORBELLS, '*', 'call', call)
    redis.call('PEXPIRE', bell, DOORBELL_TTL_MS)
  end
end

local function order(worker, text)
  redis.call('XADD', control_key(worker), 'MAXLEN', '~', ORDERS, '*', 'order', text)
  redis.call('PEXPIRE', control_key(worker), DOORBELL_TTL_MS)
end

-- Append one event; its seq is its id, so that readers ask for what follows a seq.
local function append(call, seq, kind, data)
  redis.call('XADD', events_key(call), digits(seq) .. '-0', 'type', kind, 'data', data)
end

-- Put a queued call behind (or, handed back, before) its token's others and wake the workers.
-- A token that becomes active starts at the smallest virtual time of the active ones.
local function push(call, flavor, token, memory, exposed, handed_back)
  local stream = handed_back and returned_key(flavor, token) or calls_key(flavor, token)
  local entry = redis.call('XADD', stream, '*', 'call', call, 'memory', memory, 'exposed', exposed)
  redis.call('HSET', call_key(call), 'entry', entry, 'stream', stream)
  if not redis.call('ZSCORE', ready_key(flavor), token) then
    local first = redis.call('ZRANGE', ready_key(flavor), 0, 0, 'WITHSCORES')
    redis.call('ZADD', ready_key(flavor), first[2] or 0, token)
  end
  wake(flavor)
end

-- Remove an entry; a stream without entries goes, and so does a token without streams.
local function pull(stream, entry, flavor, token)
  redis.call('XDEL', stream, entry)
  if redis.call('XLEN', stream) == 0 then
    redis.call('DEL', stream)
    if redis.call('EXISTS', calls_key(flavor, token), returned_key(flavor, token)) == 0 then
      redis.call('ZREM', ready_key(flavor), token)
    end
  end
end

-- Does this worker hold the call in this attempt? Answers its state, or nil.
local function held_state(call, owner, attempt)
  local f = redis.call('HMGET', call_key(call), 'state', 'owner', 'attempt')
  if f[2] == owner and f[3] == attempt then return f[1] end
  return nil
end

-- The end of a call: outcome, last event, doorbells, and from now on every key of it has a TTL.
local function conclude(call, state, outcome, ttl_ms)
  local truth = call_key(call)
  local f = redis.call('HMGET', truth, 'token', 'owner', 'idem', 'created_us')
  redis.call('HSET', truth, 'state', state, 'outcome', outcome, 'finished_ms', digits(now),
    'total_us', digits(now_us - f[4]), 'entry', '', 'due_ms', '')
  redis.call('HDEL', truth, 'payload')
  append(call, redis.call('HINCRBY', truth, 'seq', 1), 'result', '{"state":"' .. state .. '"}')
  ring(call)
  redis.call('DEL', subscribers_key(call))
  redis.call('ZREM', DUE, call)
  redis.call('PEXPIRE', truth, ttl_ms)
  redis.call('PEXPIRE', events_key(call), ttl_ms)
  if f[2] ~= '' then redis.call('HDEL', held_key(f[2]), call) end
  if f[3] ~= '' then redis.call('PEXPIRE', idempotency_key(f[1], f[3]), ttl_ms) end
end

local function set_due(call, at)
  redis.call('ZADD', DUE, digits(at), call)
  redis.call('HSET', call_key(call), 'due_ms', digits(at))
end

-- A leased call goes back to the head of its queue with the queueing time it had left.
local function requeue(call)
  local f = redis.call('HMGET', call_key(call), 'flavor', 'token', 'memory', 'exposed', 'owner', 'queue_left_ms')
  redis.call('HDEL', held_key(f[5]), call)
  redis.call('HSET', call_key(call), 'state', 'queued', 'owner', '')
  set_due(call, now + f[6])
  push(call, f[1], f[2], f[3], f[4], true)
end
