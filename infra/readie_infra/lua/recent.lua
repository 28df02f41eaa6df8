#!lua flags=no-writes
-- The latest calls of a token that still have a record.
--   recent:{token} zset, call:{id} hash
-- ARGV 2 token, 3 how many, 4… fields. Answers {id, values} each, the latest first.
local found = {}
for _, call in ipairs(redis.call('ZREVRANGE', recent_key(ARGV[2]), 0, -1)) do
  local values = redis.call('HMGET', call_key(call), unpack(ARGV, 4))
  if values[1] then table.insert(found, {call, values}) end
  if #found >= tonumber(ARGV[3]) then break end
end
return found
