"""Removes what a worker that was killed has left: its sandboxes, groups, networks and folders."""

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from readie_worker.sandbox.gvisor import network
from readie_worker.sandbox.gvisor.cgroups import Group, open_cgroups
from readie_worker.sandbox.gvisor.children import Children
from readie_worker.sandbox.gvisor.folder import PREFIX, orphans
from readie_worker.sandbox.gvisor.rundir import unmount_tmpfs

END_DEADLINE_S = 20.0  # SIGKILL takes milliseconds, freeing gigabytes a little longer
POLL_S = 0.02


async def remove_orphans(parent: Path) -> list[str]:
    """The owners removed. Only folders whose lock nobody holds; others' sandboxes stay untouched."""
    with orphans(parent) as folders:
        for folder in folders:
            await _remove(folder)
        return [folder.name.removeprefix(PREFIX) for folder in folders]


def removing_orphans(parent: Path) -> Sequence[str]:
    """A command that does it."""
    return (sys.executable, "-I", "-m", __spec__.name, str(parent))


async def _remove(folder: Path) -> None:
    """Without `runsc`: what it knows of the sandboxes goes with the folder."""
    owner = folder.name.removeprefix(PREFIX)
    cgroups = open_cgroups(owner)
    groups = cgroups.of_owner(owner)
    await _kill(groups)
    await network.remove_leftovers(owner)
    for group in groups:
        group.remove()
    cgroups.forget(owner)
    unmount_tmpfs(folder / "run")
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _kill(groups: Sequence[Group]) -> None:
    deadline = time.monotonic() + END_DEADLINE_S
    while any(group.pids() for group in groups):
        for group in groups:
            group.kill()
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(POLL_S)
    Children().bury()  # where they have become this worker's own


if __name__ == "__main__":
    asyncio.run(remove_orphans(Path(sys.argv[1])))
