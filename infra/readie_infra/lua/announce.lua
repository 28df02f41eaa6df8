#!lua flags=allow-oom
-- Something was published: whoever follows the bucket looks at once instead of at its next turn.
--   news stream, a few entries, TTL
redis.call('XADD', NEWS, 'MAXLEN', BELLS, '*', 'r', '1')
redis.call('PEXPIRE', NEWS, DOORBELL_TTL_MS)
return 1
