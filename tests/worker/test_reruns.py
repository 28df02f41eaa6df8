"""A call whose sandbox dies runs again as often as it allows; what it did is counted on disk."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Limits
from readie_wire.outcome import ErrorKind
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.service import Worker
from support.calling import Caller
from support.redis_servers import RedisServer

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture(autouse=True)
def _functions_travel_by_value() -> Iterator[None]:
    """A sandbox cannot import this module."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
async def worker(short_path: Path, start_worker: StartWorker) -> AsyncIterator[Worker]:
    runtime = ForkRuntime(short_path / "run", environment=os.environ)
    await runtime.open()
    async with start_worker(runtime) as worker:
        yield worker


@pytest.fixture
def tally(short_path: Path) -> Path:
    """A file to which every run appends; sandboxes may have users of their own."""
    short_path.chmod(0o711)
    file = short_path / "tally"
    file.touch()
    file.chmod(0o666)
    return file


def read(tally: Path) -> str:
    return tally.read_text()


def die(tally: Path, until: int) -> int:
    """Count this run; die in all runs before the one numbered ``until``."""
    with tally.open("a") as file:
        file.write("x")
    runs = tally.stat().st_size
    print("run", runs, flush=True)
    if runs < until:
        os._exit(9)
    return runs


@pytest.mark.parametrize("asked", [{}, {"retries": 0}, {"idempotent": False}])
async def test_it_runs_once_when_not_asked_for_more(
    worker: Worker, caller: Caller, tally: Path, asked: dict[str, Any]
) -> None:
    ended = await caller.call(die, tally, 9, **asked)
    assert ended.error.kind is ErrorKind.SANDBOX_DIED
    assert ended.error.details["exit_code"] == 9
    assert read(tally) == "x"


@pytest.mark.parametrize(
    ("asked", "runs"), [({"retries": 2}, 3), ({"idempotent": True}, 2), ({"retries": 1}, 2)]
)
async def test_it_runs_again_as_often_as_it_may_and_then_its_end_is_told(
    worker: Worker, caller: Caller, tally: Path, asked: dict[str, Any], runs: int
) -> None:
    ended = await caller.call(die, tally, 9, **asked)
    assert ended.error.kind is ErrorKind.SANDBOX_DIED
    assert read(tally) == "x" * runs
    assert ended.receipt.attempt == runs


async def test_a_later_run_that_succeeds_is_the_result_and_the_output_tells_of_both(
    worker: Worker, caller: Caller, tally: Path
) -> None:
    ended = await caller.call(die, tally, 2, retries=5)
    assert ended.value == 2
    assert ended.stdout == "run 1\nrun 2\n"
    assert "exit code 9" in ended.stderr
    assert "runs again (run 2 of 6)" in ended.stderr


def fail(tally: Path) -> None:
    with tally.open("a") as file:
        file.write("x")
    raise ValueError("mine")


def leave(tally: Path) -> None:
    with tally.open("a") as file:
        file.write("x")
    raise SystemExit(3)


@pytest.mark.parametrize(("function", "kind"), [(fail, "exception"), (leave, "exit")])
async def test_what_the_function_does_by_itself_is_no_reason_to_run_it_again(
    worker: Worker, caller: Caller, tally: Path, function: Callable[[Path], None], kind: str
) -> None:
    ended = await caller.call(function, tally, retries=3)
    assert ended.error.kind == kind
    assert read(tally) == "x"


def outlast(tally: Path) -> None:
    with tally.open("a") as file:
        file.write("x")
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


async def test_a_timeout_is_kept_from_outside_and_is_no_reason_either(
    worker: Worker, caller: Caller, tally: Path
) -> None:
    ended = await caller.call(outlast, tally, timeout=2.0, retries=3)
    assert ended.error.kind is ErrorKind.TIMEOUT
    assert read(tally) == "x"


async def test_a_call_that_outlasts_every_lease_runs_once_while_its_worker_beats(
    short_path: Path, start_worker: StartWorker, caller: Caller, server: RedisServer, tally: Path
) -> None:
    def linger(tally: Path) -> str:
        with tally.open("a") as file:
            file.write("x")
        time.sleep(6)
        return read(tally)

    impatient = CallStore(connect(server.socket_url), limits=Limits(silence_s=2.0))
    runtime = ForkRuntime(short_path / "run", environment=os.environ)
    await runtime.open()
    async with start_worker(runtime, beat=0.1):
        call = await caller.spawn(linger, tally, retries=3)
        swept: list[str] = []
        for _ in range(30):  # far more than the silence that it allows
            swept += [*(found := await impatient.sweep()).lost, *found.requeued]
            await asyncio.sleep(0.2)
        assert swept == []
        assert (await caller.end_of(call)).value == "x"
    await impatient.close()
