"""What a killed worker leaves is removed by the next one; what a living one has is not."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from readie_worker.sandbox.errors import StartError
from readie_worker.sandbox.selftest import try_runsc
from support.gvisor_kit import GVisorKit
from support.processes import tied
from support.sandbox_kits import Bench, new_spec, open_bench

OpenGVisor = Callable[..., Awaitable[Bench]]

# Starts a sandbox, says so, and waits to be killed.
_WORKER = """
import asyncio, sys
from pathlib import Path
from readie_worker.sandbox.api import Limits, SandboxSpec
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime

async def main():
    runtime = GVisorRuntime(Path(sys.argv[1]), runsc=Path(sys.argv[2]), network="sandbox", ahead=1)
    await runtime.open()
    await runtime.cold(SandboxSpec("readie-orphan-1", Limits(memory=1 << 30)))
    print("ready", flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


def kill_a_worker(folder: Path, runsc: Path) -> set[str]:
    """Names of the runtime folders it left."""
    command = tied(sys.executable, "-c", _WORKER, folder, runsc)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == b"ready\n"
        finally:
            worker.kill()
    return {path.name for path in folder.glob("gvisor-*")}


def traces(owner: str) -> list[str]:
    """Everything on this host that carries the owner's name."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/readie/{owner}")]
    namespaces = [path.name for path in Path("/run/netns").glob(f"rd-{owner}-*")]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if owner in line]
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=True
    ).stdout
    return [
        *groups,
        *namespaces,
        *mounts,
        *processes_with(f"gvisor-{owner}".encode()),
        *(line for line in tables.splitlines() if owner in line),
    ]


def processes_with(word: bytes) -> list[str]:
    """Pids of processes that have it in their command line."""
    found = Path("/proc").glob("[0-9]*/cmdline")
    return [path.parent.name for path in found if word in _bytes_of(path)]


def parent_of(pid: str) -> int:
    after_name = _bytes_of(Path(f"/proc/{pid}/stat")).rpartition(b") ")[2].split()
    return int(after_name[1]) if after_name else 0


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_the_next_worker_removes_all_that_a_killed_one_left(
    runsc: Path, short_path: Path
) -> None:
    folder = short_path / "run"
    [left] = await asyncio.to_thread(kill_a_worker, folder, runsc)
    owner = left.removeprefix("gvisor-")
    assert traces(owner)

    async with open_bench(GVisorKit(short_path, {})) as bench:
        assert not (folder / left).exists()
        assert traces(owner) == []
        assert (await (await bench.start()).driver.call(pow, 2, 3)).value == 8


async def test_the_sandboxes_of_a_living_worker_are_left_alone(
    runsc: Path, short_path: Path
) -> None:
    async with open_bench(GVisorKit(short_path, {})) as first:
        running = await first.start()
        async with open_bench(GVisorKit(short_path, {})) as second:
            await (await second.sandbox()).destroy()
        assert (await running.driver.call(pow, 2, 3)).value == 8


async def test_a_closed_runtime_leaves_nothing(open_gvisor: OpenGVisor, short_path: Path) -> None:
    bench = await open_gvisor(ahead=1)
    [left] = (short_path / "run").glob("gvisor-*")
    await bench.runtime.cold(new_spec())
    await bench.runtime.close()

    assert traces(left.name.removeprefix("gvisor-")) == []
    assert os.listdir(short_path / "run") == []  # noqa: PTH208


async def test_sandboxes_created_ahead_serve_cold_starts_and_restores(
    open_gvisor: OpenGVisor,
) -> None:
    bench = await open_gvisor(ahead=2)
    checkpoint = await bench.checkpoint("decimal")

    runnings = await asyncio.gather(
        bench.start(), bench.start(checkpoint), bench.start(checkpoint), bench.start()
    )

    replies = await asyncio.gather(*(one.driver.call(pow, 2, n) for n, one in enumerate(runnings)))
    assert [reply.value for reply in replies] == [1, 2, 4, 8]


async def test_a_start_given_up_half_way_leaves_no_process(
    open_gvisor: OpenGVisor, short_path: Path
) -> None:
    bench = await open_gvisor()
    [folder] = (short_path / "run").glob("gvisor-*")
    owner = folder.name.removeprefix("gvisor-")
    await (await bench.sandbox()).destroy()
    before = traces(owner)

    for patience in (0.01, 0.05, 0.1, 0.2):
        starting = asyncio.create_task(bench.runtime.cold(new_spec()))
        await asyncio.sleep(patience)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().destroy()

    assert traces(owner) == before


async def test_what_a_failed_create_has_made_is_collected_before_it_is_deleted(
    open_gvisor: OpenGVisor, runsc: Path, short_path: Path
) -> None:
    """Else `runsc delete` waits for it, and the caller for that."""
    failing, uncollected = short_path / "runsc", short_path / "uncollected"
    failing.write_text(
        f"""#!/bin/sh
        case " $* " in
        *" create "*) {runsc} "$@"; exit 1;;
        *" delete "*)
            for child in $(cat /proc/$PPID/task/*/children); do
                grep -qs "^Name:.exe" /proc/$child/status && echo $child >>{uncollected}
            done;;
        esac
        exec {runsc} "$@"
        """
    )
    failing.chmod(0o755)
    bench = await open_gvisor(runsc=failing)

    with pytest.raises(StartError, match="create exited with 1"):
        await bench.sandbox()

    assert not uncollected.exists()


async def test_a_binary_that_cannot_end_what_it_started_leaves_no_process(
    runsc: Path, short_path: Path
) -> None:
    keeping = short_path / "runsc"
    keeping.write_text(
        f'#!/bin/sh\ncase " $* " in *" delete "*|*" restore "*) exit 1;; esac\nexec {runsc} "$@"\n'
    )
    keeping.chmod(0o755)

    verdict = await try_runsc(keeping, rounds=1)

    assert not verdict.ok
    # Others on this machine may try a runsc too; what this one leaves is a child of this process.
    assert not [pid for pid in processes_with(b"rd-try-") if parent_of(pid) == os.getpid()]
