"""A store on each real server, and the calls to put into it."""

from collections.abc import AsyncIterator

import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Limits
from support.redis_servers import RedisServer

# Long enough for the steps that a test takes within one, also when the machine is busy.
SHORT = Limits(lease_s=0.5, lost_grace_s=0.4, cancel_grace_s=0.1, max_leases=2, settle_s=0)


@pytest.fixture
async def store(each_redis: RedisServer) -> AsyncIterator[CallStore]:
    """An empty store with the usual limits that is used to its server, on Valkey and on Redis."""
    opened = CallStore(connect(each_redis.socket_url), limits=Limits(settle_s=0))
    yield opened
    await opened.close()


@pytest.fixture
async def short_store(each_redis: RedisServer) -> AsyncIterator[CallStore]:
    """The same with leases and graces of a fraction of a second."""
    opened = CallStore(connect(each_redis.socket_url), limits=SHORT)
    yield opened
    await opened.close()
