"""A worker on real gVisor sandboxes: restored, ready ahead, and cold when a checkpoint fails."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from readie_wire.keys import new_session_id
from readie_wire.manifest import Manifest
from readie_wire.outcome import ErrorKind, StartKind
from readie_wire.records import Choice, SessionRecord
from readie_worker.holdings import QUARANTINE_AFTER
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.service import Worker
from support.calling import Caller, until
from support.generations import write_generation
from support.gvisor_kit import FlakyRunsc, GVisorKit, real_runsc

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@dataclass
class Captured:
    """A generation of one checkpoint, captured here."""

    kit: GVisorKit
    folder: Path
    checkpoint: str
    manifest: Manifest

    @property
    def choice(self) -> Choice:
        return Choice(self.manifest.generation, self.checkpoint)


@pytest.fixture
def runsc(short_path: Path) -> FlakyRunsc:
    """The real one, until it is told to fail."""
    return FlakyRunsc(short_path, real_runsc())


@pytest.fixture
async def captured(short_path: Path, runsc: FlakyRunsc) -> AsyncIterator[Captured]:
    kit = GVisorKit(short_path, {}, ahead=1, runsc=runsc.path)
    await kit.runtime.open()
    try:
        checkpoint = (await kit.capture("decimal")).key.rpartition("/")[2]
        meta = short_path / "checkpoints" / checkpoint / "meta.json"
        written = meta.read_bytes()
        manifest = write_generation(short_path, {checkpoint: ["decimal"]}, runtime="gvisor")
        meta.write_bytes(written)
        yield Captured(kit, short_path, checkpoint, manifest)
    finally:
        await kit.runtime.close()


async def test_a_call_is_restored_from_its_checkpoint(
    captured: Captured, start_worker: StartWorker, caller: Caller
) -> None:
    def loaded() -> bool:
        import sys

        print("inside")
        return "decimal" in sys.modules

    runtime = GuardedRuntime(captured.kit.runtime)
    settings = {"artifacts": captured.folder, "network": "none"}
    async with start_worker(runtime, spares=0, **settings) as worker:
        await until(lambda: any(held.checkpoints for held in worker.describe().generations))
        ended = await caller.call(loaded, choice=captured.choice)
        assert ended.value is True
        assert ended.stdout == "inside\n"
        assert ended.receipt.start_kind is StartKind.RESTORED
        assert ended.receipt.checkpoint == captured.checkpoint
        assert ended.receipt.fallback_reason is None


async def test_a_sandbox_restored_ahead_answers_and_one_that_dies_is_told(
    captured: Captured, start_worker: StartWorker, caller: Caller
) -> None:
    runtime = GuardedRuntime(captured.kit.runtime)
    settings = {"artifacts": captured.folder, "network": "none"}
    async with start_worker(runtime, spares=1, **settings) as worker:
        await until(lambda: worker.describe().pool)
        ended = await caller.call(lambda: 42, choice=captured.choice)
        assert ended.value == 42
        assert ended.receipt.start_kind is StartKind.POOL
        await until(lambda: worker.describe().pool)
        cold = Choice(captured.manifest.generation, None, predicted_start_s=5.0)
        ended = await caller.call(lambda: 43, choice=cold)
        assert ended.value == 43
        assert ended.receipt.start_kind is StartKind.POOL
        await until(lambda: worker.describe().pool)
        ended = await caller.call(lambda: os._exit(9), choice=captured.choice)
        assert ended.error.kind is ErrorKind.SANDBOX_DIED
        assert ended.error.details["exit_code"] == 9


async def test_a_damaged_image_becomes_a_cold_start(
    captured: Captured, start_worker: StartWorker, caller: Caller
) -> None:
    runtime = GuardedRuntime(captured.kit.runtime)
    settings = {"artifacts": captured.folder, "network": "none"}
    async with start_worker(runtime, spares=0, **settings) as worker:
        await until(lambda: any(held.checkpoints for held in worker.describe().generations))
        for image in (captured.folder / "checkpoints" / captured.checkpoint).glob("*.img"):
            image.write_bytes(image.read_bytes()[:1000])
        ended = await caller.call(lambda: 42, choice=captured.choice)
        assert ended.value == 42
        assert ended.receipt.start_kind is StartKind.COLD
        assert ended.receipt.fallback_reason


async def test_a_restore_that_fails_now_and_then_costs_a_cold_start_and_for_good_the_checkpoint(
    captured: Captured, runsc: FlakyRunsc, start_worker: StartWorker, caller: Caller
) -> None:
    runtime = GuardedRuntime(captured.kit.runtime)
    settings = {"artifacts": captured.folder, "network": "none"}

    async def start_kind() -> StartKind | None:
        ended = await caller.call(lambda: print("ran"), choice=captured.choice)
        assert ended.stdout == "ran\n", "not exactly once"
        return ended.receipt.start_kind

    async with start_worker(runtime, spares=0, **settings) as worker:
        await until(lambda: any(held.checkpoints for held in worker.describe().generations))
        runsc.order("exit 3")
        assert await start_kind() is StartKind.COLD
        runsc.order(None)
        assert await start_kind() is StartKind.RESTORED
        runsc.order("exit 3")
        for _ in range(QUARANTINE_AFTER):
            assert await start_kind() is StartKind.COLD
        assert any("in quarantine" in note for note in worker.describe().notes)
        runsc.order(None)
        assert await start_kind() is StartKind.COLD


async def test_a_session_keeps_its_restored_sandbox(
    captured: Captured, start_worker: StartWorker, caller: Caller
) -> None:
    def count() -> int:
        import decimal

        decimal.seen = getattr(decimal, "seen", 0) + 1  # type: ignore[attr-defined]
        return int(decimal.seen)  # type: ignore[attr-defined]

    session = SessionRecord(new_session_id(), "default", "cpu")
    runtime = GuardedRuntime(captured.kit.runtime)
    settings = {"artifacts": captured.folder, "network": "none"}
    async with start_worker(runtime, spares=0, **settings) as worker:
        await until(lambda: any(held.checkpoints for held in worker.describe().generations))
        await caller.store.open_session(session)
        kinds = []
        for number in (1, 2, 3):
            record = caller.record(count, choice=captured.choice)
            call_id = await caller.enqueue(replace(record, session=session.session_id))
            ended = await caller.end_of(call_id)
            assert ended.value == number
            kinds.append(ended.receipt.start_kind)
        assert kinds == [StartKind.RESTORED, StartKind.SESSION, StartKind.SESSION]
