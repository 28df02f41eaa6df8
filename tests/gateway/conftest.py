from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.gateway import Gateway, running_gateway
from support.redis_servers import RedisServer


@pytest.fixture
async def gateway(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(valkey.socket_url, tmp_path) as running:
        yield running
