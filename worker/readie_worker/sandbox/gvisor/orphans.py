"""Removes what a worker that was killed has left: its sandboxes, groups, networks and folders."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from readie_worker.sandbox.gvisor import network
from readie_worker.sandbox.gvisor.cgroups import open_cgroups
from readie_worker.sandbox.gvisor.children import Children
from readie_worker.sandbox.gvisor.folder import PREFIX, orphans, remove_with_mounts


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
    await asyncio.gather(*(group.end() for group in groups))
    Children().bury()  # where they have become this worker's own
    await network.remove_leftovers(owner)
    for group in groups:
        group.remove()
    cgroups.forget(owner)
    await asyncio.to_thread(remove_with_mounts, folder)


if __name__ == "__main__":
    asyncio.run(remove_orphans(Path(sys.argv[1])))
