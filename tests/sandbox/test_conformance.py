"""What every sandbox runtime must do, whatever it is made of."""

import asyncio
import os
import signal

import pytest

from readie_wire.framing import FrameType
from readie_wire.outcome import StartKind
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxExit
from readie_worker.sandbox.errors import SandboxGoneError, StartError
from support.executor_driver import DEADLINE_S
from support.sandbox_kits import MEBIBYTE, Bench, new_spec


async def test_a_cold_sandbox_runs_a_call_and_ends_by_itself(bench: Bench) -> None:
    running = await bench.start()
    reply = await running.driver.call(pow, 2, 5)
    assert reply.value == 32
    assert running.sandbox.kind is StartKind.COLD
    assert running.sandbox.checkpoint is None
    assert (await running.sandbox.wait()).exit_code == 0


async def test_a_restored_sandbox_has_its_imports_already(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("decimal", "wave")
    running = await bench.start(checkpoint)

    def loaded() -> bool:
        import sys

        return "wave" in sys.modules

    assert (await running.driver.call(loaded)).value is True
    assert running.sandbox.kind is not StartKind.COLD
    assert running.sandbox.checkpoint == checkpoint


async def test_a_cold_sandbox_has_none_of_them(bench: Bench) -> None:
    await bench.checkpoint("wave")

    def loaded() -> bool:
        import sys

        return "wave" in sys.modules

    assert (await (await bench.start()).driver.call(loaded)).value is False


async def test_hello_names_the_checkpoint(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("wave")
    sandbox = await bench.sandbox(checkpoint)
    assert not sandbox.connection.getblocking()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        frame = await loop.sock_recv(sandbox.connection, 65536)
    assert checkpoint.key.encode() in frame


async def test_many_sandboxes_start_at_once(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("wave")
    runnings = await asyncio.gather(
        *(bench.start(checkpoint) for _ in range(4)), *(bench.start() for _ in range(2))
    )
    replies = await asyncio.gather(
        *(running.driver.call(pow, 2, index) for index, running in enumerate(runnings))
    )
    assert [reply.value for reply in replies] == [1, 2, 4, 8, 16, 32]


async def test_a_checkpoint_that_was_not_adopted_cannot_be_restored(bench: Bench) -> None:
    with pytest.raises(StartError):
        await bench.runtime.restore(Checkpoint("generation/unknown", ["wave"]), new_spec())


async def test_a_discarded_checkpoint_cannot_be_restored_and_its_sandboxes_live_on(
    bench: Bench,
) -> None:
    checkpoint = await bench.checkpoint("wave")
    running = await bench.start(checkpoint)
    await bench.runtime.discard(checkpoint.key)
    await bench.runtime.discard(checkpoint.key)
    with pytest.raises(StartError):
        await bench.runtime.restore(checkpoint, new_spec())
    assert (await running.driver.call(pow, 2, 3)).value == 8


async def test_adopting_twice_is_adopting_once(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("wave")
    await bench.runtime.adopt(checkpoint)
    assert (await (await bench.start(checkpoint)).driver.call(pow, 2, 3)).value == 8


async def test_a_killed_sandbox_tells_all_its_waiters_the_same(bench: Bench) -> None:
    running = await bench.start()
    waiters = [asyncio.create_task(running.sandbox.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    await running.sandbox.kill()
    ended = await asyncio.gather(*waiters)
    assert {exit_.signal for exit_ in ended} == {signal.SIGKILL}
    assert await running.sandbox.wait() == ended[0]
    assert await running.driver.receive() is None


async def test_everything_is_harmless_after_the_end(bench: Bench) -> None:
    running = await bench.start()
    await running.sandbox.kill()
    await running.sandbox.wait()
    await running.sandbox.kill()
    await running.sandbox.peak_memory()
    with pytest.raises(SandboxGoneError):
        await running.sandbox.set_limits(Limits(memory=256 * MEBIBYTE))
    await running.driver.output()
    await asyncio.gather(running.sandbox.destroy(), running.sandbox.destroy())
    await running.sandbox.destroy()
    await running.sandbox.kill()
    await running.sandbox.wait()


async def test_a_child_process_of_the_call_ends_with_its_sandbox(bench: Bench) -> None:
    """Also one that has left its session: output ends only when the last process is gone."""
    running = await bench.start()

    def leave_children() -> None:
        import subprocess

        subprocess.Popen(["sleep", "300"])
        subprocess.Popen(["sleep", "300"], start_new_session=True)

    reply = await running.driver.call(leave_children)
    assert reply.types[-1] is FrameType.RESULT
    await running.sandbox.wait()
    assert await running.driver.output() == (b"", b"")


async def test_killing_ends_the_children_too(bench: Bench) -> None:
    running = await bench.start()

    def wait_with_children() -> None:
        import subprocess
        import time

        subprocess.Popen(["sleep", "300"], start_new_session=True)
        print("ready", flush=True)
        time.sleep(300)

    call = asyncio.create_task(running.driver.call(wait_with_children))
    await running.driver.printed(b"ready")
    await running.sandbox.kill()
    reply = await call
    assert reply.types == [FrameType.READY, FrameType.STARTED]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("import os; os._exit(9)", SandboxExit(exit_code=9)),
        ("import os; os.abort()", SandboxExit(signal=signal.SIGABRT)),
        ("import ctypes; ctypes.string_at(0)", SandboxExit(signal=signal.SIGSEGV)),
    ],
)
async def test_a_hard_end_is_told_by_code_or_signal_with_the_last_words(
    bench: Bench, end: str, expected: SandboxExit
) -> None:
    running = await bench.start()
    reply = await running.driver.run_json("source", {"source": f"print('last words')\n{end}"})
    assert reply.types == [FrameType.READY, FrameType.STARTED]
    assert reply.stdout == "last words\n"
    ended = await running.sandbox.wait()
    assert (ended.exit_code, ended.signal) == (expected.exit_code, expected.signal)


async def test_memory_has_a_limit_that_can_still_be_changed_before_go(bench: Bench) -> None:
    def allocate(size: int) -> int:
        return len(bytearray(size))

    small = await bench.start(limits=Limits(memory=256 * MEBIBYTE))
    reply = await small.driver.call(allocate, 2048 * MEBIBYTE)
    ended = await small.sandbox.wait()
    assert ended.out_of_memory or reply.error.kind == "out_of_memory"

    raised = await bench.start(limits=Limits(memory=256 * MEBIBYTE))
    await raised.sandbox.set_limits(Limits(memory=1024 * MEBIBYTE))
    assert (await raised.driver.call(allocate, 400 * MEBIBYTE)).value == 400 * MEBIBYTE


async def test_peak_memory_is_at_least_what_was_used(bench: Bench) -> None:
    running = await bench.start()
    await running.driver.call(lambda: len(b"x" * (200 * MEBIBYTE)))
    ended = await running.sandbox.wait()
    peak = await running.sandbox.peak_memory()
    assert ended.peak_memory is None or ended.peak_memory > 200 * MEBIBYTE
    assert peak is None or peak > 200 * MEBIBYTE


async def test_destroying_closes_what_the_caller_left_open_and_only_that(bench: Bench) -> None:
    sandbox = await bench.sandbox()
    os.close(sandbox.stdout)
    stranger = os.open(os.devnull, os.O_RDONLY)  # takes the number that has become free
    try:
        await sandbox.destroy()
        os.fstat(stranger)
        assert sandbox.connection.fileno() == -1
    finally:
        os.close(stranger)


async def test_nothing_of_one_call_reaches_the_next(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("wave")

    def leave_traces() -> None:
        import os
        import pathlib
        import sys

        os.environ["TOKEN"] = "s"
        os.umask(0)
        pathlib.Path("mine").touch()
        sys.path.append("/elsewhere")
        os.chdir("/")

    def look() -> tuple[object, ...]:
        import os
        import pathlib
        import sys

        umask = os.umask(0)
        found = list(pathlib.Path.cwd().iterdir())
        return os.environ.get("TOKEN"), umask, found, "/elsewhere" in sys.path

    await (await bench.start(checkpoint)).driver.call(leave_traces)
    reply = await (await bench.start(checkpoint)).driver.call(look)
    assert reply.value == (None, 0o022, [], False)


async def test_a_runtime_that_was_closed_starts_nothing(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("wave")
    running = await bench.start(checkpoint)
    await bench.runtime.close()
    await bench.runtime.close()
    assert (await running.sandbox.wait()).exit_code is None
    with pytest.raises(StartError):
        await bench.runtime.restore(checkpoint, new_spec())
    with pytest.raises(StartError):
        await bench.runtime.cold(new_spec())
