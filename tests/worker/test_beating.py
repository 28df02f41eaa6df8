"""The sign of life of a worker: it stops when the worker does, and signs off before."""

import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from readie_infra.store import CallStore
from readie_worker.beating import Beater
from readie_worker.sandbox.fake import FakeRuntime
from readie_worker.service import Worker
from support.calling import Caller, until
from support.redis_servers import RedisServer

BEAT_S = 0.05
PAUSE_MS = 1_000  # far more than a beat


async def test_a_worker_has_signed_off_when_it_ends_though_the_server_is_slow(
    start_worker: Callable[..., AbstractAsyncContextManager[Worker]],
    caller: Caller,
    server: RedisServer,
) -> None:
    runtime = FakeRuntime()
    await runtime.open()
    async with start_worker(runtime, beat=BEAT_S) as worker:
        while [one.boot for one in await caller.store.workers()] != [worker.describe().boot]:
            pass
        assert server.command("CLIENT", "PAUSE", str(PAUSE_MS), "ALL") == "+OK"
    assert "beat" not in [thread.name for thread in threading.enumerate()]
    assert await caller.store.workers() == []


async def test_a_beat_that_has_ended_takes_no_news_and_no_harm(
    start_worker: Callable[..., AbstractAsyncContextManager[Worker]],
    open_store: Callable[[], CallStore],
) -> None:
    runtime = FakeRuntime()
    await runtime.open()
    ticks: list[None] = []
    async with start_worker(runtime) as worker:
        beater = Beater(open_store, worker.describe, BEAT_S, lambda: ticks.append(None))
        beater.start()
        await until(lambda: ticks)
        await beater.close()
        beater.nudge()
        await beater.close()
        await beater.ended
