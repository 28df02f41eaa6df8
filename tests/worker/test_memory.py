"""Memory of running calls: it grows while the worker has some, and its end is told as what it is."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from readie_wire.outcome import ErrorKind
from readie_worker.capacity import Capacity
from readie_worker.sandbox.api import Runtime
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.service import Worker
from support.calling import Caller, Ended, until
from support.gvisor_kit import GVisorKit

MIB = 1 << 20
StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


def runtime_named(name: str, folder: Path) -> Runtime:
    return (
        ForkRuntime(folder, environment=os.environ)
        if name == "fork"
        else GVisorKit(folder, {}).runtime
    )


@pytest.fixture(params=["fork", "gvisor"])
async def worker(
    request: pytest.FixtureRequest, short_path: Path, start_worker: StartWorker
) -> AsyncIterator[Worker]:
    runtime = GuardedRuntime(runtime_named(request.param, short_path))
    await runtime.open()
    network = "none" if request.param == "gvisor" else "host"
    async with start_worker(runtime, network=network) as worker:
        yield worker


@pytest.fixture
async def fork_worker(short_path: Path, start_worker: StartWorker) -> AsyncIterator[Worker]:
    runtime = ForkRuntime(short_path, environment=os.environ)
    await runtime.open()
    async with start_worker(runtime) as worker:
        yield worker


def free(worker: Worker) -> int:
    return worker.describe().memory_free


async def fill(caller: Caller, mebibytes: int, **options: Any) -> Ended:
    def fill(mebibytes: int) -> int:
        return 8 * len([bytearray(b"x") * (8 << 20) for _ in range(mebibytes // 8)])

    return await caller.call(fill, mebibytes, **options)


async def test_a_call_that_fills_its_memory_gets_more_up_to_its_ceiling(
    worker: Worker, caller: Caller
) -> None:
    before = free(worker)
    ended = await fill(caller, 600, memory=128 * MIB, max_memory=1024 * MIB)
    assert ended.value == 600
    assert (ended.receipt.peak_memory_mb or 0) > 600
    await until(lambda: free(worker) == before)


async def test_beyond_the_ceiling_it_is_out_of_memory_with_limit_and_peak(
    worker: Worker, caller: Caller
) -> None:
    ended = await fill(caller, 2048, memory=128 * MIB, max_memory=256 * MIB)
    assert ended.error.kind is ErrorKind.OUT_OF_MEMORY
    assert ended.error.details["limit"] == 256 * MIB
    assert 128 * MIB < ended.error.details["peak"] < 512 * MIB
    assert ended.receipt.attempt == 1
    assert (await caller.call(lambda: 1)).value == 1


async def test_a_crash_is_not_taken_for_it(worker: Worker, caller: Caller) -> None:
    ended = await caller.call(lambda: os.kill(os.getpid(), signal.SIGKILL), memory=256 * MIB)
    assert ended.error.kind is ErrorKind.SANDBOX_DIED


async def test_one_allocation_beyond_the_limit_is_out_of_memory(
    fork_worker: Worker, caller: Caller
) -> None:
    ended = await caller.call(lambda: len(bytearray(2 << 30)), memory=256 * MIB)
    assert ended.error.kind is ErrorKind.OUT_OF_MEMORY
    assert ended.error.type == "readie.OutOfMemoryError"
    assert ended.error.details["limit"] == 256 * MIB
    assert ended.error.details["peak"] > 0


async def test_one_allocation_within_the_ceiling_is_had_at_once(
    fork_worker: Worker, caller: Caller
) -> None:
    ended = await caller.call(
        lambda: len(bytearray(800 * MIB)), memory=128 * MIB, max_memory=1024 * MIB
    )
    assert ended.value == 800 * MIB


async def test_processes_that_a_call_starts_share_its_memory(
    fork_worker: Worker, caller: Caller
) -> None:
    def spread() -> None:
        import subprocess
        import sys
        import time

        hold = "import time; kept = bytearray(b'x') * (100 << 20); time.sleep(60)"
        for _ in range(4):
            subprocess.Popen([sys.executable, "-I", "-S", "-c", hold])
        time.sleep(60)

    ended = await caller.call(spread, memory=160 * MIB, max_memory=200 * MIB)
    assert ended.error.kind is ErrorKind.OUT_OF_MEMORY
    assert ended.error.details["limit"] == 200 * MIB


async def test_no_call_gets_what_another_one_has(fork_worker: Worker, caller: Caller) -> None:
    whole = free(fork_worker)
    ended = await fill(caller, 3 * whole // MIB, memory=512 * MIB)
    assert ended.error.kind is ErrorKind.OUT_OF_MEMORY
    assert ended.error.details["limit"] == whole
    await until(lambda: free(fork_worker) == whole)


def test_capacity_gives_what_is_free_and_takes_all_of_it_back() -> None:
    capacity = Capacity(slots=2, memory=1000)
    first, second = capacity.reserve(300), capacity.reserve(200)
    capacity.extend(first, 600)
    capacity.extend(second, 1000)
    assert (first.memory, second.memory, capacity.free_memory) == (600, 400, 0)
    capacity.extend(second, 100)
    assert second.memory == 400
    capacity.free(first)
    capacity.free(second)
    assert capacity.free_memory == 1000
