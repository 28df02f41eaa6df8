"""What is particular to the fork runtime: its zygotes, their gate, and how everything ends."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from readie_worker.sandbox import fork_identity
from readie_worker.sandbox.api import Limits
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    StartError,
)
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.fork_identity import FIRST_UID, Identity
from readie_worker.sandbox.fork_sandbox import ForkSandbox
from readie_worker.sandbox.gvisor.cgroups import Group, open_cgroups
from readie_worker.sandbox.owned_folders import LOCK
from support.executor_driver import DEADLINE_S
from support.processes import tied
from support.requirements import require_part
from support.sandbox_kits import MEBIBYTE, Bench, ForkKit, gather_calls, new_spec, open_bench

UNFIT = {
    "thready": "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
    "leaky": "import socket\nSOCKET = socket.socketpair()",
    "filing": "LOG = open('/tmp/readie-test-filing', 'a')",
    "spawning": "import subprocess\nCHILD = subprocess.Popen(['sleep', '99'])",
    "broken": "raise RuntimeError('no such luck')",
    "exiting": "import sys\nsys.exit(3)",
    "crashing": "import os\nprint('oh dear', flush=True)\nos._exit(7)",
    "hanging": "import time\ntime.sleep(99)",
    "hooked": "from readie_wire import hooks\n@hooks.before_checkpoint\ndef f(): 1 / 0",
    "harmless": "NULL = open('/dev/null'); RANDOM = open('/dev/urandom', 'rb')",
    "reading": "import os\nMODE = os.environ.get('READING_MODE'); 'READING_FLAG' in os.environ",
    "slow": "import time\ntime.sleep(0.05)",
    "ending": "import threading, time\nthreading.Thread(target=time.sleep, args=(0.05,)).start()",
}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as exits:
        yield exits


async def fork_bench(
    stack: AsyncExitStack, folder: Path, modules: dict[str, str] | None = None, **options: Any
) -> Bench:
    return await stack.enter_async_context(open_bench(ForkKit(folder, modules or {}, **options)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("thready", "thready left 1 thread"),
        ("leaky", "leaky left open: .*socket"),
        ("filing", "filing left open: .*readie-test-filing"),
        ("spawning", "spawning left a child process"),
        ("broken", "import of broken failed: RuntimeError: no such luck"),
        ("exiting", "import of exiting failed: SystemExit: 3"),
        ("crashing", "ended while importing wave, crashing: oh dear"),
        ("hooked", "hook failed: ZeroDivisionError"),
        ("absent", "import of absent failed: ModuleNotFoundError"),
    ],
)
async def test_a_process_that_must_not_be_forked_is_refused_by_package(
    stack: AsyncExitStack, short_path: Path, name: str, words: str
) -> None:
    bench = await fork_bench(stack, short_path, UNFIT)
    with pytest.raises(CheckpointRefusedError, match=words):
        await bench.checkpoint("wave", name)
    assert (await (await bench.start()).driver.call(pow, 2, 2)).value == 4


async def test_an_import_that_hangs_is_given_up(stack: AsyncExitStack, short_path: Path) -> None:
    bench = await fork_bench(stack, short_path, UNFIT)
    assert isinstance(bench.runtime, ForkRuntime)
    bench.runtime._import_deadline = 2.0  # not before it is open, which may take so long as well
    with pytest.raises(CheckpointRefusedError, match="importing hanging took longer"):
        await bench.checkpoint("hanging")


async def test_a_thread_that_is_just_ending_is_waited_for(
    stack: AsyncExitStack, short_path: Path
) -> None:
    """The kernel lists one that has been joined a moment longer."""
    bench = await fork_bench(stack, short_path, UNFIT)
    running = await bench.start(await bench.checkpoint("ending"))
    assert (await running.driver.call(pow, 2, 2)).value == 4


async def test_files_without_a_position_are_harmless(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, UNFIT)
    running = await bench.start(await bench.checkpoint("harmless"))

    def read() -> int:
        import sys

        return len(sys.modules["harmless"].RANDOM.read(4))

    assert (await running.driver.call(read)).value == 4


async def test_the_report_tells_times_and_variables_read_at_import(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, UNFIT)
    checkpoint = await bench.checkpoint("reading", "slow")
    assert isinstance(bench.runtime, ForkRuntime)
    report = bench.runtime.report(checkpoint.key)
    assert {"READING_MODE", "READING_FLAG"} <= set(report["environment"])
    reading, slow = report["imports"]
    assert (reading["name"], slow["name"]) == ("reading", "slow")
    assert slow["seconds"] >= 0.05
    assert "READING_MODE" not in slow["environment"]


async def test_a_zygote_of_numeric_packages_forks_into_working_clones(
    stack: AsyncExitStack, short_path: Path
) -> None:
    """Threaded linear algebra in twenty children of a process that has imported it."""
    pytest.importorskip("numpy")
    bench = await fork_bench(stack, short_path)
    checkpoint = await bench.checkpoint("numpy", "numpy.linalg")

    def multiply() -> float:
        import numpy as np

        matrix = np.ones((300, 300))
        return float((matrix @ matrix).sum())

    for _ in range(4):
        runnings = [await bench.start(checkpoint) for _ in range(5)]
        assert await gather_calls(runnings, multiply) == [300.0**3] * 5


async def test_a_module_that_uses_readie_itself_can_be_imported_ahead(
    stack: AsyncExitStack, short_path: Path
) -> None:
    """Inside a sandbox a decorated function is the plain function."""
    source = "import readie\n@readie.remote\ndef double(x):\n    return 2 * x\n"
    bench = await fork_bench(stack, short_path, {"decorated": source})

    def call() -> int:
        import sys

        return int(sys.modules["decorated"].double(3))

    running = await bench.start(await bench.checkpoint("decorated"))
    assert (await running.driver.call(call)).value == 6


async def test_a_zygote_that_died_is_replaced_once(stack: AsyncExitStack, short_path: Path) -> None:
    bench = await fork_bench(stack, short_path)
    checkpoint = await bench.checkpoint("wave")
    running = await bench.start(checkpoint)
    os.kill(zygote_of(bench, checkpoint.key), signal.SIGKILL)
    ended = await asyncio.wait_for(running.sandbox.wait(), DEADLINE_S)
    assert ended.signal == signal.SIGKILL
    assert await running.driver.output() == (b"", b"")
    again = await asyncio.gather(*(bench.start(checkpoint) for _ in range(3)))
    assert await gather_calls(list(again), lambda: 5) == [5, 5, 5]


async def test_a_sandbox_that_ends_at_once_is_one_that_has_ended(
    stack: AsyncExitStack, short_path: Path
) -> None:
    """A busy worker reads of its beginning and of its end in one go."""
    source = "import os\nfrom readie_wire import hooks\nhooks.after_restore(lambda: os._exit(3))\n"
    bench = await fork_bench(stack, short_path, {"ending": source})
    checkpoint = await bench.checkpoint("ending")
    assert isinstance(bench.runtime, ForkRuntime)
    control = bench.runtime._zygotes[checkpoint.key]._control
    starting = asyncio.create_task(bench.sandbox(checkpoint))
    await asyncio.sleep(0)  # it has asked the zygote
    deadline = time.monotonic() + DEADLINE_S
    while b"exited" not in what_waits_in(control):
        time.sleep(0.01)  # noqa: ASYNC251 - the loop is to be busy
        assert time.monotonic() < deadline
    assert (await (await starting).wait()).exit_code == 3


async def test_closing_ends_a_zygote_that_only_its_sandboxes_kept(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path)
    checkpoint = await bench.checkpoint("wave")
    zygote = zygote_of(bench, checkpoint.key)
    await bench.sandbox(checkpoint)
    await bench.runtime.discard(checkpoint.key)
    await bench.runtime.close()
    assert not is_alive(zygote)


async def test_a_zygote_that_cannot_be_replaced_is_a_start_error(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, {"fading": "x = 1"})
    checkpoint = await bench.checkpoint("fading")
    uninstall(short_path, "fading")
    os.kill(zygote_of(bench, checkpoint.key), signal.SIGKILL)
    with pytest.raises(StartError, match="fading"):
        await bench.runtime.restore(checkpoint, new_spec())
    assert (await (await bench.start()).driver.call(pow, 2, 2)).value == 4


async def test_a_zygote_older_than_the_packages_on_disk_is_not_used(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, {"pkg": "__version__ = '1'"})
    site_packages = site_packages_of(short_path)
    (site_packages / "pkg-1.dist-info").mkdir()
    checkpoint = await bench.checkpoint("pkg")
    old = await bench.start(checkpoint)

    def version() -> str:
        import sys

        return str(sys.modules["pkg"].__version__)

    (site_packages / "pkg-1.dist-info").rename(site_packages / "pkg-2.0.dist-info")
    (site_packages / "pkg.py").write_text("__version__ = '2.0'")
    new = await bench.start(checkpoint)
    assert (await new.driver.call(version)).value == "2.0"
    assert (await old.driver.call(version)).value == "1"


async def test_something_else_that_is_new_there_does_not_matter(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, {"pkg": "__version__ = '1'"})
    site_packages = site_packages_of(short_path)
    (site_packages / "pkg-1.dist-info").mkdir()
    checkpoint = await bench.checkpoint("pkg")
    before = zygote_of(bench, checkpoint.key)
    (site_packages / "other.py").write_text("")
    await bench.start(checkpoint)
    assert zygote_of(bench, checkpoint.key) == before


async def test_a_killed_sandbox_did_not_run_out_of_memory_because_another_process_did(
    stack: AsyncExitStack, short_path: Path
) -> None:
    usable = sys.platform == "linux" and os.geteuid() == 0
    require_part("cgroups", usable, "root on Linux")
    bench = await fork_bench(stack, short_path)
    sandbox = await bench.sandbox()
    assert isinstance(sandbox, ForkSandbox)
    with group_of_its_own() as group:
        group.apply(Limits(memory=48 * MEBIBYTE))
        hungry = await asyncio.create_subprocess_exec(
            *group.joining(), *tied(sys.executable, "-c", "b'x' * (256 << 20)")
        )
        assert await hungry.wait() == -signal.SIGKILL
        assert group.out_of_memory_kills()
    os.kill(sandbox.pid, signal.SIGKILL)
    ended = await sandbox.wait()
    assert (ended.signal, ended.out_of_memory) == (signal.SIGKILL, False)


@contextmanager
def group_of_its_own() -> Iterator[Group]:
    owner = f"test-{os.getpid()}"
    cgroups = open_cgroups(owner)
    group = cgroups.make("one")
    try:
        yield group
    finally:
        group.remove()
        cgroups.forget(owner)


WORKER = """
import asyncio, os, pathlib, sys
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxSpec
from readie_worker.sandbox.fork import ForkRuntime

async def main():
    runtime = ForkRuntime(pathlib.Path(sys.argv[1]), environment=dict(os.environ))
    await runtime.open()
    checkpoint = Checkpoint("generation/checkpoint_1", ["wave"])
    await runtime.adopt(checkpoint)
    limits = Limits(memory=1 << 30)
    sandboxes = []
    for number in range(2):
        sandboxes.append(await runtime.cold(SandboxSpec(f"cold-{number}", limits)))
        sandboxes.append(await runtime.restore(checkpoint, SandboxSpec(f"fork-{number}", limits)))
    for one in sandboxes:  # one that is just becoming another program has no environment
        assert await asyncio.get_running_loop().sock_recv(one.connection, 1000)
    print(*(one.pid for one in (*runtime._zygotes.values(), *sandboxes)), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_worker_that_is_killed_leaves_nothing_and_its_secrets_were_nowhere(
    short_path: Path,
) -> None:
    require_part("/proc", Path("/proc/self/environ").exists(), "Linux")
    worker = subprocess.Popen(
        tied(sys.executable, "-c", textwrap.dedent(WORKER), short_path),
        stdout=subprocess.PIPE,
        env={**os.environ, "AWS_SECRET_ACCESS_KEY": "LEAKME", "TZ": "UTC"},
    )
    try:
        assert worker.stdout is not None
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        assert len(pids) == 6
        for pid in pids:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"LANG=C.UTF-8" in environment
            assert b"LEAKME" not in environment
    finally:
        worker.kill()
        worker.communicate(timeout=DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.01)


async def test_a_call_sees_nothing_of_the_workers_environment(
    stack: AsyncExitStack, short_path: Path
) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "LEAKME", "READIE_REDIS_URL": "redis://LEAKME"}
    given = {**secrets, "TZ": "Europe/Prague"}
    bench = await fork_bench(stack, short_path, environment=given)
    checkpoint = await bench.checkpoint("wave")

    def look() -> tuple[set[str], str | None]:
        import os

        found = {name for name, value in os.environ.items() if "LEAKME" in value or "KEY" in name}
        return found, os.environ.get("TZ")

    runnings = [await bench.start(checkpoint), await bench.start()]
    assert await gather_calls(runnings, look) == [(set(), "Europe/Prague")] * 2


async def test_folders_of_a_killed_worker_are_removed_by_the_next(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path)
    [own] = (short_path / "run").glob("fork-*")
    orphan = short_path / "run" / "fork-orphan"
    (orphan / "sandbox" / "work").mkdir(parents=True)
    (orphan / LOCK).touch()
    other = ForkRuntime(short_path / "run")
    await other.open()
    assert not orphan.exists()
    assert own.exists()
    await other.close()
    assert (await (await bench.start()).driver.call(pow, 2, 2)).value == 4


async def test_closing_leaves_no_folder_and_no_descriptor(short_path: Path) -> None:
    gc.collect()  # what earlier tests left is not to be closed in between
    before = open_descriptors()
    async with open_bench(ForkKit(short_path, {})) as bench:
        checkpoint = await bench.checkpoint("wave")
        for _ in range(3):
            await (await bench.start(checkpoint)).driver.call(pow, 2, 2)
            await bench.sandbox()
    assert list((short_path / "run").iterdir()) == []
    assert open_descriptors() == before


async def test_an_interpreter_that_cannot_run_the_executor_is_named(short_path: Path) -> None:
    python = short_path / "python"
    python.write_text("#!/bin/sh\necho 'no module readie_executor' >&2\nexit 1\n")
    python.chmod(0o755)
    runtime = ForkRuntime(short_path / "run", python=str(python))
    with pytest.raises(RuntimeUnavailableError, match="no module readie_executor"):
        await runtime.open()


async def test_a_sandbox_may_run_as_a_user_of_its_own(
    stack: AsyncExitStack, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In clones, which have what they need in memory wherever the interpreter lives."""
    require_part("root", os.geteuid() == 0, "sudo")

    async def separate(*_: object) -> Identity:
        return Identity(separate=True)

    monkeypatch.setattr("readie_worker.sandbox.fork.choose_identity", separate)
    # Limiting another user's process takes a capability that many containers do not have.
    monkeypatch.setattr("readie_worker.sandbox.fork_limits.apply", lambda *_, **__: None)
    os.chmod(short_path, 0o711)  # noqa: PTH101
    bench = await fork_bench(stack, short_path)
    checkpoint = await bench.checkpoint("json", "pathlib")

    def look() -> tuple[object, ...]:
        import os
        import pathlib

        pathlib.Path("mine").write_text("x")
        try:
            os.kill(os.getppid(), 0)
            may_signal = True
        except PermissionError:
            may_signal = False
        return os.getuid(), os.getgid(), os.getgroups(), may_signal

    runnings = [await bench.start(checkpoint) for _ in range(2)]
    looks = await gather_calls(runnings, look)
    assert looks == [(uid, uid, [], False) for uid in (FIRST_UID, FIRST_UID + 1)]


async def test_why_sandboxes_stay_root_is_said(
    stack: AsyncExitStack, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unable(*_: object) -> str:
        return "Permission denied"

    monkeypatch.setattr(fork_identity, "_probe", unable)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    bench = await fork_bench(stack, short_path)
    assert any(
        "run as root" in note and "Permission denied" in note for note in bench.runtime.notes
    )


async def test_cancelling_a_start_leaves_no_sandbox(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path)
    checkpoint = await bench.checkpoint("wave")
    for _ in range(5):
        start = asyncio.create_task(bench.runtime.restore(checkpoint, new_spec()))
        await asyncio.sleep(0)
        start.cancel()
        await asyncio.wait([start])
    await bench.start(checkpoint)
    await bench.runtime.close()
    assert list((short_path / "run").iterdir()) == []


async def test_hundreds_of_starts_at_once_are_all_served(
    stack: AsyncExitStack, short_path: Path
) -> None:
    bench = await fork_bench(stack, short_path, start_deadline=DEADLINE_S)
    checkpoint = await bench.checkpoint("wave")
    sandboxes = await asyncio.gather(
        *(bench.runtime.restore(checkpoint, new_spec()) for _ in range(150))
    )
    await asyncio.gather(*(sandbox.destroy() for sandbox in sandboxes))


def site_packages_of(folder: Path) -> Path:
    [found] = folder.glob("python/lib/python*/site-packages")
    return found


def uninstall(folder: Path, module: str) -> None:
    site_packages = site_packages_of(folder)
    for file in (*site_packages.glob(f"{module}.py"), *site_packages.rglob(f"{module}.*.pyc")):
        file.unlink()


def open_descriptors() -> set[str]:
    require_part("/proc", Path("/proc/self/fd").exists(), "Linux")
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def zygote_of(bench: Bench, key: str) -> int:
    runtime = bench.runtime
    assert isinstance(runtime, ForkRuntime)
    return int(runtime.report(key)["pid"])


def what_waits_in(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
