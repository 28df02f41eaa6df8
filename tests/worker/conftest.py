"""A worker in the test's own event loop, on a real Valkey."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readie_infra.blobs import DirectoryBlobs
from readie_infra.connecting import connect
from readie_infra.store import CallStore
from readie_wire.keys import new_boot_id
from readie_worker.sandbox.api import Runtime
from readie_worker.service import Plan, Worker
from support.calling import SURELY, Caller
from support.redis_servers import RedisServer


@pytest.fixture
def server(valkey: RedisServer) -> RedisServer:
    """The server that worker and caller meet on; a module may put its own in this place."""
    return valkey


@pytest.fixture
def open_store(server: RedisServer) -> Callable[[], CallStore]:
    return lambda: CallStore(connect(server.socket_url))


@pytest.fixture
async def caller(open_store: Callable[[], CallStore], tmp_path: Path) -> AsyncIterator[Caller]:
    store = open_store()
    yield Caller(store, DirectoryBlobs(tmp_path / "blobs"))
    await store.close()


StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def start_worker(open_store: Callable[[], CallStore], caller: Caller) -> StartWorker:
    """Run a worker on an open runtime; keywords change its plan. It drains at the end."""

    @asynccontextmanager
    async def start(runtime: Runtime, **changes: Any) -> AsyncIterator[Worker]:
        plan = Plan(
            boot=new_boot_id("worker"),
            flavor="cpu",
            slots=2,
            memory_total=4 << 30,
            network="host",
            beat=0.5,
            drain_grace=5.0,
            outcome_patience=20.0,
        )
        worker = Worker(replace(plan, **changes), runtime, open_store, caller.blobs)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        try:
            yield worker
        finally:
            stop.set()
            await asyncio.wait_for(running, SURELY)

    return start
