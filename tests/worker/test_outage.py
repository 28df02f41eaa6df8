"""Redis goes away and comes back; a blob store fails; the worker's own loop is busy."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from readie_infra.blobs import DirectoryBlobs
from readie_infra.errors import BlobUnavailableError, StoreUnavailableError
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_worker.persisting import persist
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.service import Worker
from support.calling import SURELY, Caller, text_of, until
from support.redis_servers import RedisServer

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def server(own_valkey: Callable[..., RedisServer]) -> RedisServer:
    return own_valkey(persist=True)


@pytest.fixture
async def worker(start_worker: StartWorker, short_path: Path) -> AsyncIterator[Worker]:
    runtime = ForkRuntime(short_path, environment=os.environ)
    await runtime.open()
    async with start_worker(runtime, beat=0.2) as worker:
        yield worker


async def test_the_outcome_of_a_running_function_waits_for_redis_to_come_back(
    worker: Worker, caller: Caller, server: RedisServer, tmp_path: Path
) -> None:
    def wait_for(path: Path) -> str:
        import time

        print("up")
        while not path.exists():
            time.sleep(0.01)
        print("through")
        return "done"

    call = await caller.spawn(wait_for, tmp_path / "gate")
    await caller.until(call, lambda seen: "up" in text_of(seen.events, "stdout"))
    server.kill()
    (tmp_path / "gate").touch()
    await asyncio.sleep(1)  # the function ends, and its outcome finds no server
    server.start()
    ended = await caller.end_of(call)
    assert ended.value == "done"
    assert ended.stdout == "up\nthrough\n"


async def test_a_worker_serves_and_is_known_again_after_redis_lost_everything(
    worker: Worker, caller: Caller, server: RedisServer
) -> None:
    assert (await caller.call(os.getpid)).state is State.SUCCEEDED
    server.kill()
    for file in server.folder.glob("appendonlydir/*"):
        file.unlink()
    await asyncio.sleep(0.5)  # long enough for beats and waits to fail
    server.start()
    assert (await caller.call(os.getpid)).state is State.SUCCEEDED
    async with asyncio.timeout(SURELY):
        while not await caller.store.workers():
            await asyncio.sleep(0.05)


async def test_beats_go_on_while_the_event_loop_is_busy(
    worker: Worker, caller: Caller, server: RedisServer
) -> None:
    beat = Keys().beat(worker.describe().boot)
    async with asyncio.timeout(SURELY):
        while server.command("GET", beat) == "$-1":
            await asyncio.sleep(0.05)
    before, deadline = beats(server, beat), time.monotonic() + SURELY
    while beats(server, beat) < before + 2:
        time.sleep(0.05)  # noqa: ASYNC251 - the loop is to be busy
        assert time.monotonic() < deadline


def beats(server: RedisServer, key: str) -> int:
    # INCRBY 0 answers the number on the first line, where GET answers its length.
    return int(server.command("INCRBY", key, "0").removeprefix(":"))


async def test_a_result_that_the_blob_store_does_not_take_is_told(
    worker: Worker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise BlobUnavailableError("key", "the disk is full")

    monkeypatch.setattr(DirectoryBlobs, "put", refuse)
    monkeypatch.setattr(worker._runner._settler, "_patience", 0.2)
    ended = await caller.call(bytes, 1_000_000)
    assert ended.error.kind is ErrorKind.WORKER_LOST
    assert ended.error.details["size"] > 1_000_000
    assert "the disk is full" in ended.error.message


async def test_a_payload_that_is_gone_is_told(
    worker: Worker, caller: Caller, tmp_path: Path
) -> None:
    record = caller.record(os.getpid)
    ended = await caller.end_of(
        await caller.enqueue(replace(record, payload=b"", payload_blob="blobs/call-x/payload"))
    )
    assert ended.state is State.FAILED
    assert "blobs/call-x/payload" in ended.error.message


async def test_a_step_is_repeated_until_the_patience_is_over() -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailableError("unreachable", "nobody is there")

    with pytest.raises(StoreUnavailableError):
        await persist("a step", fail, patience=0.5)
    assert tries > 1


async def test_a_step_that_works_again_gives_its_answer() -> None:
    answers = [StoreUnavailableError("loading", "soon"), "yes"]

    async def step() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert await persist("a step", step, patience=SURELY) == "yes"


async def test_a_worker_that_is_not_heard_ends_what_may_run_elsewhere_and_nothing_else(
    worker: Worker, caller: Caller, server: RedisServer, tmp_path: Path
) -> None:
    def wait_for(gate: Path, runs: Path) -> int:
        import time

        with runs.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not gate.exists():
            time.sleep(0.01)
        return len(runs.read_text().split())

    def pids(runs: Path) -> list[int]:
        return [int(pid) for pid in runs.read_text().split()] if runs.exists() else []

    def first_lives(runs: Path) -> bool:
        return Path(f"/proc/{pids(runs)[0]}").exists()

    gate, plain, repeatable = tmp_path / "gate", tmp_path / "plain", tmp_path / "repeatable"
    calls = [
        await caller.spawn(wait_for, gate, plain),
        await caller.spawn(wait_for, gate, repeatable, retries=1),
    ]
    await until(lambda: pids(plain) and pids(repeatable))
    server.kill()
    await until(lambda: not first_lives(repeatable))
    assert first_lives(plain)
    server.start()
    await until(lambda: len(pids(repeatable)) == 2)
    gate.touch()
    assert [(await caller.end_of(call)).value for call in calls] == [1, 2]
