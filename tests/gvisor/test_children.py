"""How a runtime learns that the processes of its sandboxes have ended."""

import asyncio
import os
from pathlib import Path

from readie_worker.sandbox.gvisor.children import Children


def stand_in(folder: Path, name: str, standard_input: int) -> int:
    """A child that looks like one of `runsc`'s, and ends when its input does."""
    command = folder / "exe"
    if not command.exists():
        command.symlink_to("/bin/sh")
    words = [name, "-c", "read line", name, f"--bundle={folder}"]
    actions = [(os.POSIX_SPAWN_DUP2, standard_input, 0)]
    return os.posix_spawn(command, words, {}, file_actions=actions)


def wait_for_deaths(*pids: int) -> None:
    """Until they are dead, and leave them to be buried."""
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def buried(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_what_one_runtime_awaits_another_does_not_bury(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, False)
    pids = [stand_in(tmp_path, name, ours) for name in ("runsc-sandbox", "runsc-gofer")]
    stranger = stand_in(tmp_path, "another", ours)
    children = Children()
    processes = await children.of(tmp_path)
    os.close(theirs)
    os.close(ours)
    wait_for_deaths(*pids, stranger)
    Children().bury()
    assert buried(stranger)
    statuses = [await children.ended(pid) for pid in processes.all]
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [1, 1]


async def test_a_process_that_shows_itself_late_is_waited_for(tmp_path: Path) -> None:
    """As one that is just starting its program anew."""
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, False)
    children = Children()
    kernel = stand_in(tmp_path, "runsc-sandbox", ours)
    looking = asyncio.create_task(children.of(tmp_path))
    await asyncio.sleep(0)
    gofer = stand_in(tmp_path, "runsc-gofer", ours)
    assert (await looking).all == (kernel, gofer)
    os.close(theirs)
    os.close(ours)
    for pid in (kernel, gofer):
        await children.ended(pid)
