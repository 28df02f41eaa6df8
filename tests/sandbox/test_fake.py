"""The fake runtime breaks exactly where it was told to, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from readie_wire.framing import FrameType, ProtocolError, TruncatedMessageError
from readie_worker.sandbox.api import Checkpoint, Limits
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    SandboxGoneError,
    StartError,
)
from readie_worker.sandbox.fake import FakeAnswer, FakeRuntime, Fault
from support.executor_driver import call_header, driven
from support.sandbox_kits import new_spec


@pytest.fixture
async def fake() -> AsyncIterator[FakeRuntime]:
    runtime = FakeRuntime()
    await runtime.open()
    yield runtime
    await runtime.close()


async def types_of(fake: FakeRuntime, fault: Fault | None = None) -> list[FrameType]:
    """The messages of one sandbox with this fault, up to its end."""
    fake.order(fault)
    sandbox = await fake.cold(new_spec())
    async with driven(sandbox.connection, sandbox.stdout, sandbox.stderr) as driver:
        await driver.send(FrameType.CALL, call_header("source"), b"{}")
        await driver.send(FrameType.GO)
        return (await driver.finish()).types


HELLO, READY, STARTED = FrameType.HELLO, FrameType.READY, FrameType.STARTED


async def test_without_a_fault_a_call_is_answered(fake: FakeRuntime) -> None:
    fake.answer = lambda call: FakeAnswer(
        FrameType.RESULT, {"encoding": "json"}, call.body, stdout=b"out", stderr=b"err"
    )
    sandbox = await fake.cold(new_spec())
    async with driven(sandbox.connection, sandbox.stdout, sandbox.stderr) as driver:
        await driver.hello()
        reply = await driver.run(b"[1]", kind="source")
    assert (reply.value, reply.stdout, reply.stderr) == ([1], "out", "err")
    assert (await sandbox.wait()).exit_code == 0


@pytest.mark.parametrize(
    ("fault", "types"),
    [
        (Fault.DIES_BEFORE_HELLO, []),
        (Fault.DIES_BEFORE_READY, [HELLO]),
        (Fault.DIES_BEFORE_GO, [HELLO, READY]),
        (Fault.DIES_BEFORE_STARTED, [HELLO, READY]),
        (Fault.DIES_AFTER_STARTED, [HELLO, READY, STARTED]),
    ],
)
async def test_it_dies_where_it_was_told_to(
    fake: FakeRuntime, fault: Fault, types: list[FrameType]
) -> None:
    assert await types_of(fake, fault) == types
    assert (await fake.sandboxes[0].wait()).signal
    assert (await types_of(fake))[-1] is FrameType.RESULT


@pytest.mark.parametrize(
    "fault", [Fault.HANGS_BEFORE_HELLO, Fault.HANGS_BEFORE_READY, Fault.HANGS_AFTER_STARTED]
)
async def test_one_that_hangs_ends_when_it_is_killed(fake: FakeRuntime, fault: Fault) -> None:
    fake.order(fault)
    sandbox = await fake.cold(new_spec())
    async with driven(sandbox.connection, sandbox.stdout, sandbox.stderr) as driver:
        await driver.send(FrameType.CALL, call_header("source"), b"{}")
        await driver.send(FrameType.GO)
        waiting = asyncio.create_task(driver.finish())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        await sandbox.kill()
        assert FrameType.RESULT not in (await waiting).types


async def test_a_truncated_result_is_noticed(fake: FakeRuntime) -> None:
    fake.order(Fault.TRUNCATES_ITS_RESULT)
    sandbox = await fake.cold(new_spec())
    async with driven(sandbox.connection, sandbox.stdout, sandbox.stderr) as driver:
        await driver.hello()
        reply = await driver.run(b"{}", kind="source")
        assert reply.types == [READY, STARTED]
        with pytest.raises(TruncatedMessageError):
            driver.decoder.close()


async def test_garbage_is_no_message(fake: FakeRuntime) -> None:
    with pytest.raises(ProtocolError):
        await types_of(fake, Fault.WRITES_GARBAGE)


async def test_starts_checkpoints_and_limits_fail_as_ordered() -> None:
    with pytest.raises(RuntimeUnavailableError, match="no such thing"):
        await FakeRuntime(unavailable="no such thing").open()
    fake = FakeRuntime(refused=["generation/bad"])
    with pytest.raises(StartError):
        await fake.cold(new_spec())
    await fake.open()
    with pytest.raises(CheckpointRefusedError):
        await fake.adopt(Checkpoint("generation/bad", []))
    with pytest.raises(StartError):
        await fake.restore(Checkpoint("generation/bad", []), new_spec())
    fake.order(Fault.FAILS_TO_START, Fault.LIMITS_FAIL)
    with pytest.raises(StartError):
        await fake.cold(new_spec())
    sandbox = await fake.cold(new_spec())
    with pytest.raises(OSError, match="ordered"):
        await sandbox.set_limits(Limits(memory=1))
    await fake.close()
    assert sandbox.destroyed
    with pytest.raises(SandboxGoneError):
        await sandbox.set_limits(Limits(memory=1))
