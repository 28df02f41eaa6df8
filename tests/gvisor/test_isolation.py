"""What code in a sandbox can reach, and what it cannot."""

import gc
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from readie_worker.sandbox.api import Limits
from readie_worker.sandbox.gvisor.rootfs import GID, UID
from support.sandbox_kits import MEBIBYTE, Bench

OpenGVisor = Callable[..., Awaitable[Bench]]


async def ask(bench: Bench, function: Any, *arguments: Any, limits: Limits | None = None) -> Any:
    """What the function returns in a cold sandbox."""
    running = await bench.start(limits=limits)
    return (await running.driver.call(function, *arguments)).value


def refusals(paths: list[str]) -> dict[str, str]:
    """What writing to each path ends with."""
    from pathlib import Path

    found = {}
    for path in paths:
        try:
            Path(path).write_text("x")
            found[path] = "written"
        except OSError as error:
            found[path] = type(error).__name__
    return found


async def test_it_is_a_user_without_any_capability(bench: Bench) -> None:
    def status() -> dict[str, str]:
        from pathlib import Path

        lines = Path("/proc/self/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    found = await ask(bench, status)

    assert found["Uid"].split() == [str(UID)] * 4
    assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16}


async def test_nothing_of_the_host_can_be_written(bench: Bench) -> None:
    paths = ["/run/readie/x", "/run/readie/ticket.json", "/usr/x", "/etc/passwd", "/etc/x", "/x"]

    found = await ask(bench, refusals, paths)

    assert "written" not in found.values()


async def test_what_the_user_of_sandboxes_owns_on_the_host_cannot_be_written_by_a_trick(
    open_gvisor: OpenGVisor, short_path: Path
) -> None:
    """By chance, as the number is meant to be nobody's; it was the one of many a machine's first user."""

    def write(folder: str, file: str, user: int) -> dict[str, str]:
        import ctypes
        from pathlib import Path

        found = {}
        libc = ctypes.CDLL(None)
        for way in ("as it is", "mounted anew in a user namespace"):
            if way != "as it is":
                assert libc.unshare(0x10000000 | 0x20000) == 0
                Path("/proc/self/uid_map").write_text(f"0 {user} 1")
                assert libc.mount(b"none", folder.encode(), None, 32, None) == 0
            try:
                Path(file).write_text("CHANGED = True")
                found[way] = "written"
            except OSError as error:
                found[way] = type(error).__name__
        return found

    bench = await open_gvisor({"owned": ""})
    python = short_path / "python"
    [file] = python.glob("lib/python*/site-packages/owned.py")
    os.chown(file, UID, GID)

    found = await ask(bench, write, str(python), str(file), UID)

    assert len(found) == 2
    assert "written" not in found.values()
    assert file.read_text() == ""


async def test_the_ticket_cannot_be_replaced_by_a_link(bench: Bench) -> None:
    def replace() -> str:
        from pathlib import Path

        try:
            Path("/run/readie/ticket.json").symlink_to("/etc/passwd")
        except OSError as error:
            return type(error).__name__
        return "replaced"

    assert await ask(bench, replace) != "replaced"


async def test_peoples_data_and_system_secrets_are_not_there(bench: Bench, tmp_path: Path) -> None:
    def visible(paths: list[str]) -> list[str]:
        from pathlib import Path

        seen = [path.name for path in Path("/root").iterdir()]
        return [path for path in paths if Path(path).exists()] + seen

    private = tmp_path / "private"
    private.write_text("mine")
    paths = ["/etc/shadow", "/etc/ssl/private", "/var/lib", "/home/mine", str(private)]

    found = await ask(bench, visible, paths)

    # Only the way to an interpreter that lies under it may be seen.
    assert set(found) <= {".pyenv"}


async def test_nothing_of_the_workers_environment_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "LEAKME")

    def environment() -> list[str]:
        import os
        from pathlib import Path

        return [*os.environ, Path("/proc/self/environ").read_text()]

    found = await ask(bench, environment)

    assert not [name for name in found if "KEY" in name or "LEAKME" in name]


async def test_private_folders_are_writable_and_of_this_sandbox_alone(bench: Bench) -> None:
    def use() -> list[str]:
        from pathlib import Path

        folders = Path("/tmp"), Path("/dev/shm")
        before = [path.name for folder in folders for path in folder.iterdir()]
        for folder in folders:
            (folder / "mine").write_text("x")
        return before

    # The way to an environment that lies under /tmp on the host may be there.
    first = await ask(bench, use)
    assert "mine" not in first
    assert await ask(bench, use) == first


async def test_locks_and_pools_of_processes_work(bench: Bench) -> None:
    """They need /dev/shm and more than one process."""

    def work() -> list[int]:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        multiprocessing.Lock()
        with ProcessPoolExecutor(2) as pool:
            return list(pool.map(abs, [-1, 2]))

    assert await ask(bench, work) == [1, 2]


async def test_the_worker_can_be_called_once_and_then_no_more(bench: Bench) -> None:
    def connect_again() -> str:
        import socket

        try:
            socket.socket(socket.AF_UNIX).connect("/run/readie/executor.sock")
        except OSError as error:
            return type(error).__name__
        return "connected"

    assert await ask(bench, connect_again) == "FileNotFoundError"


async def test_no_socket_of_the_host_can_be_made_from_inside(bench: Bench) -> None:
    def bind() -> str:
        import socket

        try:
            socket.socket(socket.AF_UNIX).bind("/run/readie/mine.sock")
        except OSError as error:
            return type(error).__name__
        return "bound"

    assert await ask(bench, bind) != "bound"


async def test_open_files_have_a_limit(bench: Bench) -> None:
    def limits() -> tuple[tuple[int, int], tuple[int, int]]:
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)

    assert await ask(bench, limits) == ((4096, 4096), (0, 0))


async def test_a_bomb_of_processes_ends_its_own_sandbox_and_nothing_else(bench: Bench) -> None:
    def bomb() -> None:
        import os
        import time

        while True:
            if os.fork() == 0:
                time.sleep(300)

    victim = await bench.start()
    bomber = await bench.start(limits=Limits(memory=2048 * MEBIBYTE, pids=64))
    await bomber.driver.call(bomb)
    ended = await bomber.sandbox.wait()

    assert ended.crowded
    assert "more processes than it may have" in str(ended)
    assert (await victim.driver.call(pow, 2, 3)).value == 8


@pytest.mark.parametrize("where", ["memory", "/tmp/x", "/dev/shm/x"])
async def test_memory_used_up_anywhere_is_told_apart_from_a_crash(bench: Bench, where: str) -> None:
    def fill(where: str) -> None:
        if where == "memory":
            kept = []
            while True:
                kept.append(b"x" * (8 << 20))
        from pathlib import Path

        with Path(where).open("wb") as file:
            while True:
                file.write(b"x" * (8 << 20))

    running = await bench.start(limits=Limits(memory=256 * MEBIBYTE))
    await running.driver.call(fill, where)
    ended = await running.sandbox.wait()

    assert ended.out_of_memory
    assert (ended.peak_memory or 0) > 200 * MEBIBYTE


async def test_a_killed_sandbox_is_not_taken_for_one_without_memory(bench: Bench) -> None:
    running = await bench.start()
    await running.sandbox.kill()

    assert not (await running.sandbox.wait()).out_of_memory


async def test_a_sandbox_leaves_nothing_on_the_host(bench: Bench, short_path: Path) -> None:
    [folder] = (short_path / "run").glob("gvisor-*")
    owner = folder.name.removeprefix("gvisor-")

    def traces() -> tuple[int, list[str], list[str]]:
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/readie/{owner}/*/")]
        return descriptors, groups, [path.name for path in (folder / "run").iterdir()]

    await (await bench.sandbox()).destroy()
    gc.collect()  # what earlier tests left is not to be closed in between
    before = traces()
    for _ in range(3):
        await (await bench.sandbox()).destroy()

    assert traces() == before
    assert before[1:] == ([], [])
