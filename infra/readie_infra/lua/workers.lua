#!lua flags=allow-oom
-- The fleet. Members whose record has expired are dropped.
--   workers set, worker:{boot} hash
-- Answers the fields of each worker.
local records = {}
for _, boot in ipairs(redis.call('SMEMBERS', WORKERS)) do
  local fields = redis.call('HGETALL', worker_key(boot))
  if #fields == 0 then
    redis.call('SREM', WORKERS, boot)
  else
    table.insert(records, fields)
  end
end
return records
