"""What becomes of a call when its sandbox fails, at every step of its start and after it.

The sandboxes are fakes that fail on request; the store is a real one.
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog.testing

from readie_wire.framing import FrameType, Message
from readie_wire.lifecycle import State
from readie_wire.manifest import Manifest
from readie_wire.outcome import ErrorKind, StartKind
from readie_wire.records import Choice
from readie_worker.holdings import QUARANTINE_AFTER
from readie_worker.sandbox.fake import FakeAnswer, FakeRuntime, Fault
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.service import Worker
from support.calling import SURELY, Caller, until
from support.generations import EMPTY, write_generation

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]

# Seconds that a start may take, so what hangs takes as long. Far more than one takes, also when the
# machine is busy.
SOON = 1.0

BEFORE_STARTED = [
    (Fault.FAILS_TO_START, "failed: the sandbox does not start"),
    (Fault.HANGS_IN_START, "did not come up within 1 s"),
    (Fault.DIES_BEFORE_HELLO, "its executor closed its connection"),
    (Fault.HANGS_BEFORE_HELLO, "its executor did not connect within 1 s"),
    (Fault.SPEAKS_ANOTHER_PROTOCOL, "this worker speaks 3"),
    (Fault.WRITES_GARBAGE, "broke the protocol: unknown frame type 255"),
    (Fault.DIES_BEFORE_READY, "its executor closed its connection"),
    (Fault.HANGS_BEFORE_READY, "its executor did not take the call within 1 s"),
    (Fault.DIES_BEFORE_GO, "its executor closed its connection"),
    (Fault.DIES_BEFORE_STARTED, "its executor closed its connection"),
]
# With a sandbox made ahead, these are the ones that its call meets.
OF_A_READY_SANDBOX = [
    (Fault.DIES_BEFORE_READY, "its executor closed its connection"),
    # Started while it was taken, or taken just before the worker offered what it had ready.
    (Fault.HANGS_BEFORE_READY, "within 1 s"),
    (Fault.DIES_BEFORE_GO, "its executor closed its connection"),
    (Fault.DIES_BEFORE_STARTED, "its executor closed its connection"),
]


class Runs:
    """Counts how often the function ran, and answers for it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _: Message) -> FakeAnswer:
        self.count += 1
        body = pickle.dumps("ran")
        return FakeAnswer(FrameType.RESULT, {"encoding": "pickle"}, body, stdout=b"said\n")


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
async def fake(runs: Runs) -> AsyncIterator[FakeRuntime]:
    runtime = FakeRuntime(answer=runs)
    await runtime.open()
    yield runtime
    await runtime.close()


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return write_generation(tmp_path / "generation", {EMPTY: [], "checkpoint_1": ["json"]})


@pytest.fixture
async def worker(
    fake: FakeRuntime, manifest: Manifest, start_worker: StartWorker, tmp_path: Path
) -> AsyncIterator[Worker]:
    """Makes no sandbox ahead: each call takes the way of lease, restore and fence."""
    async with start_worker(
        GuardedRuntime(fake), artifacts=tmp_path / "generation", spares=0, start_timeout=SOON
    ) as worker:
        await until(lambda: len(fake.adopted) == 2)
        yield worker


def chosen(manifest: Manifest, checkpoint: str = EMPTY) -> Choice:
    return Choice(manifest.generation, checkpoint, predicted_s=0.25)


def function() -> str:
    return "the fake answers for it"


async def test_a_restored_sandbox_serves_behind_the_fence(
    worker: Worker, caller: Caller, manifest: Manifest, runs: Runs
) -> None:
    ended = await caller.call(function, choice=chosen(manifest))
    assert ended.value == "ran"
    assert ended.stdout == "said\n"
    assert ended.receipt.start_kind is StartKind.FORKED
    assert ended.receipt.fallback_reason is None
    assert runs.count == 1


@pytest.mark.parametrize(("fault", "reason"), BEFORE_STARTED)
async def test_a_problem_before_the_start_becomes_one_cold_start(
    worker: Worker,
    caller: Caller,
    manifest: Manifest,
    fake: FakeRuntime,
    runs: Runs,
    fault: Fault,
    reason: str,
) -> None:
    fake.order(fault)
    with structlog.testing.capture_logs() as logs:
        ended = await caller.call(function, choice=chosen(manifest))
    assert ended.value == "ran"
    assert ended.receipt.start_kind is StartKind.COLD
    assert ended.receipt.checkpoint is None
    assert reason in (ended.receipt.fallback_reason or "")
    assert runs.count == 1
    (line,) = [log for log in logs if log["event"] == "falling back to a cold start"]
    assert line["reason"] == ended.receipt.fallback_reason
    await until(lambda: all(sandbox.destroyed for sandbox in fake.sandboxes))


async def test_a_swap_while_a_payload_comes_leads_to_what_is_held_then(
    worker: Worker,
    caller: Caller,
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = caller.record(function, choice=chosen(manifest, "checkpoint_1"))
    record = replace(record, needs=("json",), payload_blob="blobs/payload")
    await caller.blobs.put("blobs/payload", record.payload)
    fetch, asked, let_go = caller.blobs.get, asyncio.Event(), asyncio.Event()

    async def fetch_late(key: str) -> bytes:
        asked.set()
        await let_go.wait()
        return await fetch(key)

    monkeypatch.setattr(caller.blobs, "get", fetch_late)
    call = await caller.enqueue(record)
    async with asyncio.timeout(SURELY):
        await asked.wait()
    fresh = write_generation(
        tmp_path / "generation", {EMPTY: [], "checkpoint_2": ["json"]}, created="20270101T000000"
    )
    await until(lambda: worker.describe().generations[0].generation == fresh.generation)
    let_go.set()
    ended = await caller.end_of(call)
    assert ended.value == "ran"
    assert (ended.receipt.generation, ended.receipt.checkpoint) == (
        fresh.generation,
        "checkpoint_2",
    )


@pytest.mark.parametrize(("fault", "reason"), OF_A_READY_SANDBOX)
async def test_a_ready_sandbox_that_fails_before_the_start_becomes_one_cold_start(
    start_worker: StartWorker,
    caller: Caller,
    manifest: Manifest,
    fake: FakeRuntime,
    runs: Runs,
    tmp_path: Path,
    fault: Fault,
    reason: str,
) -> None:
    fake.order(fault, fault)  # one for each checkpoint
    async with start_worker(
        fake, artifacts=tmp_path / "generation", spares=1, start_timeout=SOON
    ) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        ended = await caller.call(function, choice=chosen(manifest))
    assert ended.value == "ran"
    assert ended.receipt.start_kind is StartKind.COLD
    assert reason in (ended.receipt.fallback_reason or "")
    assert runs.count == 1


async def test_a_ready_sandbox_whose_limits_cannot_be_set_is_not_used(
    start_worker: StartWorker,
    caller: Caller,
    manifest: Manifest,
    fake: FakeRuntime,
    tmp_path: Path,
) -> None:
    fake.order(Fault.LIMITS_FAIL, Fault.LIMITS_FAIL)
    async with start_worker(
        GuardedRuntime(fake), artifacts=tmp_path / "generation", spares=1
    ) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        ended = await caller.call(function, choice=chosen(manifest), memory=64 << 20)
    assert ended.receipt.start_kind is StartKind.COLD
    assert "limits" in (ended.receipt.fallback_reason or "")


async def test_a_ready_sandbox_gets_the_limits_of_its_call(
    start_worker: StartWorker,
    caller: Caller,
    manifest: Manifest,
    fake: FakeRuntime,
    tmp_path: Path,
) -> None:
    async with start_worker(fake, artifacts=tmp_path / "generation", spares=1) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        await caller.call(function, choice=chosen(manifest), memory=64 << 20)
    assert [one.limits.memory for one in fake.sandboxes].count(64 << 20) == 1


async def test_a_ready_sandbox_of_another_checkpoint_serves_where_that_is_sooner(
    fake: FakeRuntime,
    manifest: Manifest,
    start_worker: StartWorker,
    caller: Caller,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "generation"
    async with start_worker(GuardedRuntime(fake), artifacts=folder, spares=1) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        slow = Choice(manifest.generation, None, predicted_start_s=5.0)
        ended = await caller.call(function, choice=slow)
        assert ended.value == "ran"
        assert ended.receipt.checkpoint in (EMPTY, "checkpoint_1")
        assert ended.receipt.fallback_reason == (
            f"a cold start: a sandbox of {ended.receipt.checkpoint} was ready"
        )


@pytest.mark.parametrize("fault", [Fault.DIES_AFTER_STARTED, Fault.TRUNCATES_ITS_RESULT])
async def test_a_sandbox_that_dies_after_the_start_ends_the_call_and_it_is_not_run_again(
    worker: Worker, caller: Caller, manifest: Manifest, fake: FakeRuntime, fault: Fault
) -> None:
    fake.order(fault)
    ended = await caller.call(function, choice=chosen(manifest))
    assert ended.error.kind is ErrorKind.SANDBOX_DIED
    assert ended.error.details["signal"] == "SIGSEGV"
    assert ended.receipt.start_kind is StartKind.FORKED
    assert len(fake.sandboxes) == 1


async def test_a_sandbox_that_hangs_after_the_start_meets_the_timeout(
    worker: Worker, caller: Caller, manifest: Manifest, fake: FakeRuntime
) -> None:
    fake.order(Fault.HANGS_AFTER_STARTED)
    ended = await caller.call(function, choice=chosen(manifest), timeout=0.5)
    assert ended.error.kind is ErrorKind.TIMEOUT
    assert len(fake.sandboxes) == 1


async def test_a_cold_start_that_fails_is_tried_once_more_and_then_told(
    worker: Worker, caller: Caller, fake: FakeRuntime, manifest: Manifest, runs: Runs
) -> None:
    cold = Choice(manifest.generation, None)
    fake.order(Fault.FAILS_TO_START)
    ended = await caller.call(function, choice=cold)
    assert ended.value == "ran"
    assert ended.receipt.fallback_reason
    fake.order(Fault.FAILS_TO_START, Fault.DIES_BEFORE_HELLO)
    ended = await caller.call(function, choice=cold)
    assert ended.error.kind is ErrorKind.SANDBOX_DIED
    assert "no sandbox could be started" in ended.error.message
    assert runs.count == 1


async def test_a_checkpoint_that_keeps_failing_is_put_in_quarantine(
    worker: Worker, caller: Caller, fake: FakeRuntime, manifest: Manifest
) -> None:
    for _ in range(QUARANTINE_AFTER):
        fake.order(Fault.FAILS_TO_START)
        ended = await caller.call(function, choice=chosen(manifest, "checkpoint_1"))
        assert ended.receipt.start_kind is StartKind.COLD
    ended = await caller.call(function, choice=chosen(manifest, "checkpoint_1"))
    assert ended.receipt.checkpoint == EMPTY
    assert "quarantine" in (ended.receipt.fallback_reason or "")
    assert any("quarantine" in note for note in worker.describe().notes)
    assert worker.describe().generations[0].checkpoints == (EMPTY,)


async def test_failures_with_a_success_between_them_are_no_reason_for_quarantine(
    worker: Worker, caller: Caller, fake: FakeRuntime, manifest: Manifest
) -> None:
    for _ in range(QUARANTINE_AFTER):
        fake.order(Fault.FAILS_TO_START)
        await caller.call(function, choice=chosen(manifest))
        await caller.call(function, choice=chosen(manifest))
    assert len(worker.describe().generations[0].checkpoints) == 2


async def test_a_call_cancelled_while_its_sandbox_is_made_never_starts(
    start_worker: StartWorker, caller: Caller, fake: FakeRuntime, manifest: Manifest, runs: Runs
) -> None:
    fake.order(Fault.HANGS_IN_START)
    async with start_worker(fake, spares=0, start_timeout=1.0) as worker:
        call = await caller.spawn(function, choice=Choice())
        await until(lambda: worker.describe().free_slots == 1)  # it was taken
        await caller.store.cancel(call, "enough")
        await until(lambda: worker.describe().free_slots == 2)
    assert (await caller.end_of(call)).state is State.CANCELLED
    assert runs.count == 0


async def test_a_call_cancelled_before_it_is_handed_over_is_cancelled_and_not_a_death(
    worker: Worker, caller: Caller, fake: FakeRuntime, manifest: Manifest, runs: Runs
) -> None:
    fake.order(Fault.HANGS_BEFORE_READY)
    call = await caller.spawn(function, choice=chosen(manifest))
    await until(lambda: fake.sandboxes)
    await caller.store.cancel(call, "enough")
    assert (await caller.end_of(call)).state is State.CANCELLED
    await until(lambda: worker.describe().free_slots == 2)
    assert runs.count == 0


async def test_a_pool_that_cannot_make_a_sandbox_rests_and_makes_it_later(
    start_worker: StartWorker, caller: Caller, fake: FakeRuntime, manifest: Manifest, tmp_path: Path
) -> None:
    fake.order(Fault.FAILS_TO_START, Fault.DIES_BEFORE_HELLO)
    async with start_worker(fake, artifacts=tmp_path / "generation", spares=1) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
    assert len(fake.sandboxes) == 3


async def test_a_ready_sandbox_that_dies_is_replaced(
    start_worker: StartWorker, caller: Caller, fake: FakeRuntime, manifest: Manifest, tmp_path: Path
) -> None:
    async with start_worker(fake, artifacts=tmp_path / "generation", spares=1) as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        await fake.sandboxes[0].kill()
        await until(lambda: len(fake.sandboxes) == 3 and len(worker.describe().pool) == 2)
        assert fake.sandboxes[0].destroyed


async def test_nothing_is_left_of_a_worker_that_ended(
    start_worker: StartWorker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    fake = FakeRuntime()
    await fake.open()
    async with start_worker(fake, artifacts=tmp_path / "generation", spares=2) as worker:
        await until(lambda: sum(worker.describe().pool.values()) == 4)
    assert not fake.opened
    assert all(sandbox.destroyed for sandbox in fake.sandboxes)
