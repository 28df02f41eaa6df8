"""Removes what a worker that was killed has left: its sandboxes, groups, networks and folders."""

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

from readie_worker.sandbox.gvisor import network
from readie_worker.sandbox.gvisor.builds import RunscBuild
from readie_worker.sandbox.gvisor.cgroups import open_cgroups
from readie_worker.sandbox.gvisor.folder import PREFIX, orphans
from readie_worker.sandbox.gvisor.rundir import unmount_tmpfs
from readie_worker.sandbox.gvisor.runsc import Container, Runsc, RunscError


async def remove_orphans(parent: Path, build: RunscBuild) -> list[str]:
    """The owners removed. Only folders whose lock nobody holds; others' sandboxes stay untouched."""
    with orphans(parent) as folders:
        for folder in folders:
            await _remove(folder, build)
        return [folder.name.removeprefix(PREFIX) for folder in folders]


async def _remove(folder: Path, build: RunscBuild) -> None:
    owner = folder.name.removeprefix(PREFIX)
    cgroups = open_cgroups(owner)
    groups = cgroups.of_owner(owner)
    for group in groups:
        for pid in group.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    runsc = Runsc(build.path, folder / "state")
    with contextlib.suppress(RunscError):
        for name in await runsc.containers():
            await runsc.delete(Container(name, folder, "none"))
    await network.remove_leftovers(owner)
    for group in groups:
        group.remove()
    cgroups.forget(owner)
    unmount_tmpfs(folder / "run")
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
