"""One connection to the queue's server."""

from redis import Redis
from redis.exceptions import RedisError

from readie_pipeline.errors import QueueError

_DEADLINE_S = 10.0  # for connecting and for one answer


def connect(url: str) -> Redis:
    """Raises `QueueError`: no such server, or it does not answer."""
    try:
        connection: Redis = Redis.from_url(url, socket_connect_timeout=_DEADLINE_S)
        connection.ping()
    except (RedisError, ValueError) as error:
        raise QueueError(f"no queue at {url.rpartition('@')[2]}: {error}") from error
    return connection
