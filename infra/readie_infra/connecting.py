"""The connection to Redis or Valkey: how it is made, and its errors in our words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from readie_infra.errors import StoreUnavailableError

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 5.0
LONGEST_BLOCK_S = 5.0  # of a command that waits on the server; then it is asked again
RETRIES = 3  # with the pauses below about half a second: a restarting server, not an outage
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.25
MAX_CONNECTIONS = 1_000  # more commands than this at once is a leak, not load


def connect(url: str) -> Redis:
    """A client for ``redis://``, ``rediss://`` or ``unix://``; connects at its first command."""
    keepalive: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive": True}
    client: Redis = Redis.from_url(
        url,
        **keepalive,
        protocol=2,  # RESP3 over a unix socket raises in some releases of the client
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # A `Line` watches its answers. The client's own timeout waits with `wait_for`, which loses
        # a cancellation that meets an answer (before Python 3.12) and costs a task.
        socket_timeout=None,
        max_connections=MAX_CONNECTIONS,
        retry=retrying(TimeoutError),  # of a connection: answers have no limit here
    )
    return client


def retrying(*errors: type[Exception]) -> Retry:
    """How often, and at which intervals, a command is repeated whose connection broke.

    ``errors`` are more that mean this.
    """
    return Retry(
        ExponentialBackoff(cap=LONGEST_PAUSE_S, base=FIRST_PAUSE_S),
        RETRIES,
        supported_errors=(exceptions.ConnectionError, *errors),  # type: ignore[arg-type]
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raise `StoreUnavailableError` for whatever the client library raises inside the block."""
    try:
        yield
    except exceptions.RedisError as error:
        raise StoreUnavailableError(_reason(error), str(error)) from error
    except OSError as error:
        raise StoreUnavailableError("unreachable", str(error)) from error


def _reason(error: exceptions.RedisError) -> str:
    match error:
        case exceptions.TimeoutError():
            return "timeout"
        case exceptions.BusyLoadingError() | exceptions.MasterDownError():
            return "loading"
        case exceptions.ConnectionError():
            return "unreachable"
        case exceptions.OutOfMemoryError():
            return "memory_full"
        case exceptions.ReadOnlyError():
            return "read_only"
        case exceptions.ResponseError() if str(error).startswith("OOM"):
            return "memory_full"
        case _:
            return "refused"
