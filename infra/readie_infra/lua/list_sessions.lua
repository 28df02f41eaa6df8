#!lua flags=no-writes
-- The open sessions of a token; those that have ended are known by id only.
--   sessions zset (bounded), session:{id} hash, calls:session:{id} stream
-- ARGV 2 token. Answers {id, fields and values, calls that wait} each.
local found = {}
for _, session in ipairs(redis.call('ZRANGE', SESSIONS, 0, -1)) do
  if redis.call('HGET', session_key(session), 'token') == ARGV[2] then
    table.insert(found, {session, redis.call('HGETALL', session_key(session)),
      redis.call('XLEN', session_calls_key(session))})
  end
end
return found
