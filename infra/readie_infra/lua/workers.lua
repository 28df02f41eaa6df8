#!lua flags=no-writes
-- The fleet. Those whose record has expired are not listed; the sweep finds out that they are dead.
--   workers set, worker:{boot} hash
-- Answers the fields of each worker.
local records = {}
for _, boot in ipairs(redis.call('SMEMBERS', WORKERS)) do
  local fields = redis.call('HGETALL', worker_key(boot))
  if #fields > 0 then table.insert(records, fields) end
end
return records
