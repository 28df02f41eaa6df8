"""Limits by cgroups: version 1 and 2 as files, and the machine's own for real."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from readie_worker.sandbox.api import Limits
from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.cgroups import CONTROLLERS, OWN_PIDS, Group, open_cgroups
from readie_worker.sandbox.gvisor.commands import run
from support.executor_driver import DEADLINE_S
from support.processes import tied

LIMITS = Limits(memory=256 << 20, cpus=1.5, pids=100)


def mounts(tmp_path: Path, *lines: str) -> Path:
    table = tmp_path / "mounts"
    table.write_text("".join(f"{line} 0 0\n" for line in lines))
    return table


def test_version_2_is_one_folder_with_controllers_handed_down(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    top.mkdir()
    table = mounts(tmp_path, f"cgroup2 {top} cgroup2 rw,nosuid")

    group = open_cgroups("abc", table).make("readie-abc-1")
    group.apply(LIMITS)

    folder = top / "readie" / "abc" / "readie-abc-1"
    assert (top / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (folder.parent / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (folder / "memory.max").read_text() == str(256 << 20)
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "pids.max").read_text() == str(100 + OWN_PIDS)
    assert group.joining()[-2:] == (str(folder), "--")


def test_version_2_tells_kills_and_the_peak(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    top.mkdir()
    group = open_cgroups("abc", mounts(tmp_path, f"c {top} cgroup2 rw")).make("one")
    folder = top / "readie" / "abc" / "one"

    assert (group.out_of_memory_kills(), group.peak_memory()) == (0, None)
    (folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 2\n")
    (folder / "memory.peak").write_text("123456\n")

    assert (group.out_of_memory_kills(), group.peak_memory()) == (2, 123456)


def test_a_group_that_will_get_more_memory_waits_for_it(tmp_path: Path) -> None:
    growing, fixed = Limits(memory=1000, growing=True), Limits(memory=1000)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    two = open_cgroups("abc", mounts(tmp_path, f"c {tmp_path}/two cgroup2 rw")).make("one")
    high = tmp_path / "two/readie/abc/one/memory.high"
    one = open_cgroups("abc", mounts(tmp_path, f"c {tmp_path}/one cgroup rw,memory,cpu,pids"))
    control = tmp_path / "one/readie/abc/one/memory.oom_control"
    for limits, slow_from, waits in ((growing, "950", "1"), (fixed, "max", "0")):
        two.apply(limits)
        one.make("one").apply(limits)
        assert (high.read_text(), control.read_text()) == (slow_from, waits)


@pytest.mark.parametrize(
    ("table", "swap"),
    [
        (["c {} cgroup2 rw"], "memory.swap.max"),
        (["c {} cgroup rw,memory,cpu,pids"], "memory.swappiness"),
    ],
)
def test_memory_that_is_limited_is_not_swapped_out_instead(
    tmp_path: Path, table: list[str], swap: str
) -> None:
    lines = [line.format(tmp_path) for line in table]
    group = open_cgroups("abc", mounts(tmp_path, *lines)).make("one")
    file = group.folders["memory"] / swap
    group.apply(LIMITS)
    assert not file.exists()  # a kernel without swap lacks it

    file.write_text("60")
    group.apply(LIMITS)

    assert file.read_text() == "0"


@pytest.mark.parametrize(
    ("table", "usage", "prefix"),
    [
        (["c {} cgroup2 rw"], "memory.current", ""),
        (["c {} cgroup rw,memory,cpu,pids"], "memory.usage_in_bytes", "total_"),
    ],
)
def test_memory_in_use_is_without_the_cache_of_files(
    tmp_path: Path, table: list[str], usage: str, prefix: str
) -> None:
    top = tmp_path / "cgroup"
    top.mkdir()
    group = open_cgroups("abc", mounts(tmp_path, *(line.format(top) for line in table))).make("one")
    folder = top / "readie" / "abc" / "one"
    assert group.memory_in_use() is None
    (folder / usage).write_text("1000\n")
    (folder / "memory.stat").write_text(
        f"{prefix}rss 500\n{prefix}inactive_file 100\n{prefix}active_file 20\nshmem 300\n"
    )
    assert group.memory_in_use() == 880


def test_no_cpu_limit_is_said_in_the_words_of_each_version(tmp_path: Path) -> None:
    unlimited = Limits(memory=1 << 20)
    for name in ("two", "memory", "cpu", "pids"):
        (tmp_path / name).mkdir()

    two = open_cgroups("abc", mounts(tmp_path, f"c {tmp_path}/two cgroup2 rw")).make("one")
    two.apply(unlimited)
    one = open_cgroups(
        "abc",
        mounts(
            tmp_path,
            *(f"c {tmp_path}/{name} cgroup rw,{name}" for name in ("memory", "cpu", "pids")),
        ),
    ).make("one")
    one.apply(unlimited)

    assert (tmp_path / "two/readie/abc/one/cpu.max").read_text() == "max 100000"
    assert (tmp_path / "cpu/readie/abc/one/cpu.cfs_quota_us").read_text() == "-1"


def test_a_machine_without_a_controller_is_refused_with_its_name(tmp_path: Path) -> None:
    table = mounts(tmp_path, f"c {tmp_path} cgroup rw,cpu,cpuacct")

    with pytest.raises(RuntimeUnavailableError, match="memory, pids not mounted"):
        open_cgroups("abc", table)


async def test_a_real_group_of_version_2_is_joined_ended_and_removed(
    runsc: Path, short_path: Path
) -> None:
    """Its controllers may all belong to version 1 here, so no limit is set."""
    await run(["mount", "-t", "cgroup2", "none", short_path], DEADLINE_S)
    folder = short_path / f"readie-test-{os.getpid()}"
    group = Group(dict.fromkeys(CONTROLLERS, folder), version=2)
    try:
        os.mkdir(folder)  # noqa: PTH102
        shell = [*group.joining(), "/bin/sh", "-c", "sleep 300 & echo in; wait"]
        process = await asyncio.create_subprocess_exec(*tied(*shell), stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"in\n"
        assert len(group.pids()) == 2

        await group.end()

        assert await process.wait() == -signal.SIGKILL
        group.remove()
        with pytest.raises(FileNotFoundError):
            os.rmdir(folder)  # noqa: PTH106
    finally:
        await run(["umount", short_path], DEADLINE_S)


def test_real_groups_hold_the_process_and_its_children(runsc: Path) -> None:
    owner = f"test-{os.getpid()}"
    cgroups = open_cgroups(owner)
    group = cgroups.make("one")
    try:
        group.apply(LIMITS)
        done = subprocess.run(
            [
                *group.joining(),
                *(sys.executable, "-c", "b'x' * 20_000_000; print(*open('/proc/self/cgroup'))"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"readie/{owner}/one" in done.stdout
        assert (group.peak_memory() or 0) > 10_000_000
        assert [found.folders for found in cgroups.of_owner(owner)] == [group.folders]
    finally:
        group.remove()
        cgroups.forget(owner)
    assert not any(folder.exists() for folder in group.folders.values())
