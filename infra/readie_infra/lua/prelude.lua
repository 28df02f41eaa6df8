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
local function session_key(session) return PREFIX .. 'session:' .. session end
local function session_calls_key(session) return PREFIX .. 'calls:session:' .. session end
local function dead_key(flavor) return PREFIX .. 'dead:' .. flavor end
local function imports_key(day) return PREFIX .. 'imports:' .. day end
local DUE = PREFIX .. 'due'
local SESSIONS = PREFIX .. 'sessions'
local WORKERS = PREFIX .. 'workers'
local NEWS = PREFIX .. 'news'

local BELLS = 8 -- entries; a bell only says "look", one would do
local DOORBELLS = 2000 -- entries; a gateway that lost some finds its calls by looking
local TOLD_BYTES = 4096 -- of an outcome and a result that a doorbell tells; larger ones are read
local RERUN_WAIT_MS = 600000 -- 10 min at least; a call that has run is not given up for a busy fleet
local ORDERS = 1000 -- entries; more orders than a worker has calls
local BELL_TTL_MS = 86400000 -- a day; bells of flavors nobody uses any more end by themselves
local DOORBELL_TTL_MS = 600000 -- 10 min; doorbells and orders for the dead end by themselves

local DEAD = 1000 -- parked calls of one flavor; the oldest gives way, as if it had been dropped
local LAST_LOGS = 20 -- pieces of output looked at for a parked call's last words
local LAST_WORDS = 4000 -- bytes of them that are kept

local TOMBSTONE_MS = 86400000 -- a day in which a session that has ended is told from an unknown one

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- ms
local now_us = clock[1] * 1000000 + clock[2]

-- Numbers of more than 14 digits must not go through tostring.
local function digits(number) return string.format('%.0f', number) end

-- How long ago that was; a clock that was set back makes nothing negative.
local function since_us(at) return digits(math.max(0, now_us - at)) end

local function wake(flavor)
  redis.call('XADD', bell_key(flavor), 'MAXLEN', BELLS, '*', 'r', '1')
  redis.call('PEXPIRE', bell_key(flavor), BELL_TTL_MS)
end

-- Tell every gateway that waits for the call to look at it; what follows the call is told along.
local function ring(call, ...)
  for _, gateway in ipairs(redis.call('SMEMBERS', subscribers_key(call))) do
    local bell = doorbell_key(gateway)
    redis.call('XADD', bell, 'MAXLEN', '~', DOORBELLS, '*', 'call', call, ...)
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
  if entry == '' then return end -- a session's current call waits for its worker in no stream
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

-- The first call that waits in a session's line, nil when none does; entries without a call go.
local function first_in_line(session, flavor, token)
  local line = session_calls_key(session)
  while true do
    local entry = redis.call('XRANGE', line, '-', '+', 'COUNT', 1)[1]
    if not entry then return nil end
    local call = entry[2][2]
    local f = redis.call('HMGET', call_key(call), 'state', 'entry')
    if f[1] == 'queued' and f[2] == entry[1] then return call, entry[1] end
    pull(line, entry[1], flavor, token)
  end
end

-- Whose turn is it? A session's worker is told to take the next call; before it has one, the call
-- is queued for any. A session without calls begins to be idle.
local function advance(session)
  local s = redis.call('HMGET', session_key(session), 'state', 'current', 'worker', 'flavor', 'token', 'idle_ms')
  if s[1] ~= 'open' then return end
  if s[2] ~= '' then
    if redis.call('EXISTS', call_key(s[2])) == 1 then return end
    redis.call('HSET', session_key(session), 'current', '') -- somebody deleted it: it never ends
  end
  local call, entry = first_in_line(session, s[4], s[5])
  if not call then
    redis.call('ZADD', SESSIONS, digits(now + s[6]), session)
  elseif s[3] ~= '' then
    order(s[3], '{"type":"session","session":"' .. session .. '"}')
  else
    pull(session_calls_key(session), entry, s[4], s[5])
    redis.call('HSET', session_key(session), 'current', call)
    local f = redis.call('HMGET', call_key(call), 'memory', 'exposed')
    push(call, s[4], s[5], f[1], f[2], false)
  end
end

-- Put a queued call at the end of its session's line.
local function line_up(call, session)
  local line = session_calls_key(session)
  local entry = redis.call('XADD', line, '*', 'call', call)
  redis.call('HSET', call_key(call), 'entry', entry, 'stream', line)
  redis.call('ZADD', SESSIONS, '+inf', session)
  advance(session)
end

-- The end of a call: outcome, last event, doorbells, and from now on every key of it has a TTL.
-- `result` is known to be all there is beside the outcome: then the doorbells may tell the end.
local function conclude(call, state, outcome, ttl_ms, result, pinned)
  local truth = call_key(call)
  local f = redis.call('HMGET', truth, 'token', 'owner', 'idem', 'created_us', 'session', 'state',
    'queue_us', 'attempt')
  local total_us = since_us(f[4])
  redis.call('HSET', truth, 'state', state, 'outcome', outcome, 'finished_ms', digits(now),
    'total_us', total_us, 'entry', '', 'due_ms', '')
  if not pinned then redis.call('HDEL', truth, 'payload', 'sealed') end
  local seq = redis.call('HINCRBY', truth, 'seq', 1)
  append(call, seq, 'result', '{"state":"' .. state .. '"}')
  if result and #outcome + #result <= TOLD_BYTES then
    ring(call, 'seq', digits(seq), 'state', state, 'outcome', outcome, 'result', result, 'owner', f[2],
      'attempt', f[8], 'queue_us', f[7], 'total_us', total_us)
  else
    ring(call)
  end
  redis.call('DEL', subscribers_key(call))
  redis.call('ZREM', DUE, call)
  if not pinned then redis.call('PEXPIRE', truth, ttl_ms) end
  redis.call('PEXPIRE', events_key(call), ttl_ms)
  if f[2] ~= '' then redis.call('HDEL', held_key(f[2]), call) end
  if f[3] ~= '' then redis.call('PEXPIRE', idempotency_key(f[1], f[3]), ttl_ms) end
  if f[5] and f[5] ~= '' then
    local key = session_key(f[5])
    local current = redis.call('HGET', key, 'current')
    if current then
      if f[6] == 'running' then redis.call('HINCRBY', key, 'served', 1) end
      if current == call then redis.call('HSET', key, 'current', '', 'used_ms', digits(now)) end
      advance(f[5])
    else -- even its tombstone is gone, and must not come back without an end
      redis.call('ZREM', SESSIONS, f[5])
    end
  end
end

local function cancel_order(call) return '{"type":"cancel","call":"' .. call .. '"}' end

-- The end of a session, once: its tombstone, its worker told, its calls that have not run failed
-- with `outcome`. One that runs is left to whoever ends the session.
local function end_session(session, reason, outcome, ttl_ms)
  local key = session_key(session)
  local s = redis.call('HMGET', key, 'state', 'worker', 'current', 'flavor', 'token')
  if s[1] ~= 'open' then return false end
  redis.call('HSET', key, 'state', 'ended', 'reason', reason, 'ended_ms', digits(now))
  redis.call('PEXPIRE', key, TOMBSTONE_MS)
  redis.call('ZREM', SESSIONS, session)
  if s[2] ~= '' then order(s[2], '{"type":"close","session":"' .. session .. '"}') end
  if s[3] ~= '' then
    local f = redis.call('HMGET', call_key(s[3]), 'state', 'owner', 'entry', 'stream')
    if f[1] == 'queued' then
      pull(f[4], f[3], s[4], s[5])
      conclude(s[3], 'failed', outcome, ttl_ms)
    elseif f[1] == 'leased' then
      order(f[2], cancel_order(s[3]))
      conclude(s[3], 'failed', outcome, ttl_ms)
    end
  end
  local call, entry = first_in_line(session, s[4], s[5])
  while call do
    pull(session_calls_key(session), entry, s[4], s[5])
    conclude(call, 'failed', outcome, ttl_ms)
    call, entry = first_in_line(session, s[4], s[5])
  end
  return true
end

-- A call of a session is about to end in a way that its sandbox does not survive.
local function end_session_of(call, reason, outcome, ttl_ms)
  local session = redis.call('HGET', call_key(call), 'session')
  if not session or session == '' then return end
  if redis.call('HGET', session_key(session), 'current') == call then
    redis.call('HSET', session_key(session), 'current', '')
  end
  end_session(session, reason, outcome, ttl_ms)
end

local function set_due(call, at)
  redis.call('ZADD', DUE, digits(at), call)
  redis.call('HSET', call_key(call), 'due_ms', digits(at))
end

-- A leased call goes back to the head of its queue with the queueing time it had left.
local function requeue(call)
  local f = redis.call('HMGET', call_key(call), 'flavor', 'token', 'memory', 'exposed', 'owner',
    'queue_left_ms', 'session')
  redis.call('HDEL', held_key(f[5]), call)
  redis.call('HSET', call_key(call), 'state', 'queued', 'owner', '')
  set_due(call, now + f[6])
  if f[7] and f[7] ~= '' then
    local s = redis.call('HMGET', session_key(f[7]), 'served', 'worker')
    if s[1] ~= '0' then -- only that worker has the sandbox
      redis.call('HSET', call_key(call), 'entry', '', 'stream', '')
      if s[2] then order(s[2], '{"type":"session","session":"' .. f[7] .. '"}') end
      return
    end
    redis.call('HSET', session_key(f[7]), 'worker', '')
  end
  push(call, f[1], f[2], f[3], f[4], true)
end

-- A call whose run came to nothing goes back for one of the reruns it is allowed; never in a
-- session, whose state is gone with its sandbox, nor when somebody wants the call to end.
local function rerun(call)
  local f = redis.call('HMGET', call_key(call), 'reruns', 'cancel', 'session', 'queue_left_ms')
  if tonumber(f[1] or '0') < 1 or f[2] ~= '' or (f[3] or '') ~= '' then return false end
  local wait = math.max(tonumber(f[4]), RERUN_WAIT_MS)
  redis.call('HSET', call_key(call), 'queue_left_ms', digits(wait))
  redis.call('HINCRBY', call_key(call), 'reruns', -1)
  redis.call('HSET', call_key(call), 'reran', '1')
  requeue(call)
  return true
end

-- A parked call is kept no longer: its record ends by itself, and with that its blobs.
local function unpark(call, ttl_ms)
  redis.call('HDEL', call_key(call), 'payload', 'sealed')
  redis.call('PEXPIRE', call_key(call), ttl_ms)
end

local function last_words(call)
  local words = {}
  for _, item in ipairs(redis.call('XREVRANGE', events_key(call), '+', '-', 'COUNT', LAST_LOGS)) do
    local read, value = pcall(cjson.decode, item[2][4])
    if item[2][2] == 'log' and read and value.text then table.insert(words, 1, value.text) end
  end
  return string.sub(table.concat(words), -LAST_WORDS)
end

-- A call that came to nothing as often as it may: its caller is told, and it is kept for an operator.
local function park(call, reason, outcome, ttl_ms)
  local f = redis.call('HMGET', call_key(call), 'flavor', 'token', 'function', 'attempt')
  local words = last_words(call)
  conclude(call, 'dead', outcome, ttl_ms, nil, true)
  local line = dead_key(f[1])
  local entry = redis.call('XADD', line, '*', 'call', call, 'token', f[2], 'function', f[3],
    'attempt', f[4], 'reason', reason, 'last_words', words)
  redis.call('HSET', call_key(call), 'dead_entry', entry)
  while redis.call('XLEN', line) > DEAD do
    local oldest = redis.call('XRANGE', line, '-', '+', 'COUNT', 1)[1]
    redis.call('XDEL', line, oldest[1])
    unpark(oldest[2][2], ttl_ms)
  end
end

-- A running call whose worker or time is over, and that may not run again.
local function lose(call, outcome, ttl_ms)
  if redis.call('HGET', call_key(call), 'reran') then
    park(call, 'its worker was lost in each run that it was allowed', outcome, ttl_ms)
  else
    conclude(call, 'lost', outcome, ttl_ms)
  end
end

-- A worker gets a queued call whose entry is gone: leased, or running where its sandbox is ready.
local function lease(call, worker, ticket, ready, lease_ms, grace_ms)
  local truth = call_key(call)
  local f = redis.call('HMGET', truth, 'timeout_ms', 'created_us', 'due_ms')
  local at = digits(now)
  redis.call('HINCRBY', truth, 'attempt', 1)
  redis.call('HSET', truth, 'owner', worker, 'taken_ms', at, 'entry', '',
    'queue_us', since_us(f[2]), 'queue_left_ms', digits(f[3] - now))
  if ready then
    redis.call('HSET', truth, 'state', 'running', 'started_ms', at)
    set_due(call, now + f[1] + grace_ms)
  else
    redis.call('HSET', truth, 'state', 'leased')
    set_due(call, now + lease_ms)
  end
  redis.call('HSET', held_key(worker), call, ticket)
  return {call, redis.call('HGETALL', truth)}
end

-- What a worker was given by a take with this ticket, whose answer it may not have got; or nil.
local function given(worker, ticket)
  local held = redis.call('HGETALL', held_key(worker)) -- at most one call a slot
  for i = 1, #held, 2 do
    if held[i + 1] == ticket then return {held[i], redis.call('HGETALL', call_key(held[i]))} end
  end
  return nil
end
