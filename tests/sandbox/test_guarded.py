"""The guard: one mutation at a time, killed on the first error, harmless afterwards."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from readie_wire.outcome import StartKind
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxExit, SandboxSpec
from readie_worker.sandbox.errors import SandboxError, SandboxGoneError, StartError
from readie_worker.sandbox.fake import FakeRuntime, Fault
from readie_worker.sandbox.guarded import GuardedRuntime, GuardedSandbox
from support.sandbox_kits import new_spec

LIMITS = Limits(memory=1 << 20)


class Unruly:
    """A sandbox whose every operation takes a turn of the loop and then may fail or hang."""

    id = "readie-unruly-1"
    kind = StartKind.COLD
    checkpoint: Checkpoint | None = None
    stdout = stderr = -1
    connection: socket.socket

    def __init__(self, *, fails: Sequence[str] = (), hangs: Sequence[str] = ()) -> None:
        self.log: list[str] = []
        self._fails, self._hangs = fails, hangs

    async def _do(self, what: str) -> None:
        self.log.append(f"{what} begins")
        await asyncio.sleep(0)
        if what in self._hangs:
            await asyncio.Event().wait()
        if what in self._fails:
            raise ValueError(f"{what} went wrong")
        self.log.append(f"{what} ends")

    async def set_limits(self, limits: Limits) -> None:
        await self._do("set_limits")

    async def wait(self) -> SandboxExit:
        return SandboxExit(exit_code=0)

    async def kill(self) -> None:
        await self._do("kill")

    async def memory_in_use(self) -> int | None:
        await self._do("memory_in_use")
        return 1

    async def peak_memory(self) -> int | None:
        await self._do("peak_memory")
        return 1

    async def destroy(self) -> None:
        await self._do("destroy")


async def test_mutations_run_one_after_the_other() -> None:
    inner = Unruly()
    guarded = GuardedSandbox(inner)
    await asyncio.gather(guarded.set_limits(LIMITS), guarded.set_limits(LIMITS))
    assert inner.log == ["set_limits begins", "set_limits ends"] * 2


async def test_the_first_error_kills_and_everything_is_harmless_afterwards() -> None:
    inner = Unruly(fails=["set_limits", "kill", "peak_memory", "destroy"])
    guarded = GuardedSandbox(inner)
    with pytest.raises(SandboxGoneError, match="went wrong"):
        await guarded.set_limits(LIMITS)
    assert "kill begins" in inner.log
    with pytest.raises(SandboxGoneError, match="went wrong"):
        await guarded.set_limits(LIMITS)
    assert inner.log.count("set_limits begins") == 1
    await guarded.kill()
    assert await guarded.peak_memory() is None
    await asyncio.gather(guarded.destroy(), guarded.destroy())
    assert inner.log.count("destroy begins") == 1


async def test_killing_does_not_wait_for_what_hangs() -> None:
    inner = Unruly(hangs=["set_limits"])
    guarded = GuardedSandbox(inner)
    stuck = asyncio.create_task(guarded.set_limits(LIMITS))
    await asyncio.sleep(0)
    await guarded.kill()
    assert "kill ends" in inner.log
    stuck.cancel()
    await asyncio.wait([stuck])


async def test_a_mutation_that_hangs_ends_the_sandbox() -> None:
    inner = Unruly(hangs=["set_limits"])
    with pytest.raises(SandboxGoneError):
        await GuardedSandbox(inner, deadline=0.01).set_limits(LIMITS)
    assert "kill ends" in inner.log


async def test_destroying_goes_to_its_end_when_the_caller_stops_waiting() -> None:
    inner = Unruly()
    guarded = GuardedSandbox(inner)
    impatient = asyncio.create_task(guarded.destroy())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    await guarded.destroy()
    assert inner.log == ["destroy begins", "destroy ends"]


class FailingRuntime(FakeRuntime):
    """Its starts raise what drivers should never raise."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def cold(self, spec: SandboxSpec) -> "GuardedSandbox":  # type: ignore[override]
        raise self._error


@pytest.mark.parametrize(
    "error", [KeyError("surprise"), SandboxError("vague"), StartError("known")]
)
async def test_whatever_a_start_raises_is_a_start_error(error: Exception) -> None:
    guarded = GuardedRuntime(FailingRuntime(error))
    with pytest.raises(StartError, match=str(error.args[0])):
        await guarded.cold(new_spec())


async def test_a_start_that_hangs_is_given_up() -> None:
    fake = FakeRuntime()
    guarded = GuardedRuntime(fake, start_deadline=0.01)
    await guarded.open()
    fake.order(Fault.HANGS_IN_START)
    with pytest.raises(StartError, match="did not start within"):
        await guarded.cold(new_spec())
    await guarded.close()


async def test_a_sandbox_that_comes_up_too_late_is_destroyed() -> None:
    late = asyncio.Event()

    class LateRuntime(FakeRuntime):
        async def cold(self, spec: SandboxSpec) -> Unruly:  # type: ignore[override]
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await late.wait()  # it does not stop at once
            return inner

    inner = Unruly()
    guarded = GuardedRuntime(LateRuntime(), start_deadline=0.01)
    with pytest.raises(StartError):
        await guarded.cold(new_spec())
    late.set()
    await guarded.close()
    assert "destroy ends" in inner.log


async def test_a_guarded_runtime_is_the_runtime() -> None:
    fake = FakeRuntime()
    guarded = GuardedRuntime(fake)
    await guarded.open()
    checkpoint = Checkpoint("generation/checkpoint_1", ["wave"])
    await guarded.adopt(checkpoint)
    sandbox = await guarded.restore(checkpoint, new_spec())
    assert (guarded.name, guarded.isolation, guarded.notes) == (
        fake.name,
        fake.isolation,
        fake.notes,
    )
    assert (sandbox.kind, sandbox.checkpoint) == (StartKind.FORKED, checkpoint)
    await sandbox.kill()
    assert (await sandbox.wait()).signal
    await guarded.discard(checkpoint.key)
    with pytest.raises(StartError):
        await guarded.restore(checkpoint, new_spec())
    await guarded.close()
