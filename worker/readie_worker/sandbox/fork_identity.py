"""Which user the sandboxes of a fork runtime run as."""

import asyncio
import itertools
import os
import resource
import sys
from pathlib import Path

# Above every range that distributions, containers and name services hand out.
FIRST_UID = 1_900_000_000
UIDS = 65_536
PROBE_DEADLINE_S = 20.0

# What a sandbox of another user must be able to do: load C extensions, the executor, and read
# every folder of the import path and its own run folder.
_PROBE = """
import os, sys, decimal, ssl, sqlite3, cloudpickle, readie_executor.__main__
for folder in sys.path:
    os.path.isdir(folder) and os.listdir(folder)
os.stat(sys.argv[1])
"""


class Identity:
    """Gives each sandbox a user id of its own, where that works.

    `note` is a sentence about it for operators; empty when there is nothing to say.
    """

    def __init__(self, *, separate: bool, note: str = "") -> None:
        self._numbers = itertools.cycle(range(FIRST_UID, FIRST_UID + UIDS)) if separate else None
        self.note = note

    def next_uid(self) -> int | None:
        """The next sandbox's user; `None`: the worker's own."""
        return next(self._numbers) if self._numbers is not None else None


async def choose_identity(python: str, run_folder: Path) -> Identity:
    """Users of their own when we are root and such a user can run the interpreter."""
    if os.geteuid() != 0:
        return Identity(separate=False)
    problem = await _probe(python, run_folder)
    if problem is None:
        return Identity(separate=True)
    return Identity(
        separate=False,
        note=f"calls run as root and not as users of their own: {problem}",
    )


async def _probe(python: str, run_folder: Path) -> str | None:
    """Why another user cannot run sandboxes here; `None` when it can."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-I", "-c", _PROBE, str(run_folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={},
            user=FIRST_UID,
            group=FIRST_UID,
            extra_groups=[],
        )
    except OSError as error:
        return _unreadable(python, str(error))
    limits_problem = _limits_problem(process.pid)
    try:
        async with asyncio.timeout(PROBE_DEADLINE_S):
            _, printed = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it took longer than {PROBE_DEADLINE_S:g} s"
    if process.returncode == 0:
        return limits_problem
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return _unreadable(python, lines[-1] if lines else f"exit code {process.returncode}")


def _unreadable(python: str, reason: str) -> str:
    return (
        f"another user cannot run {python} ({reason}); install the interpreter and its packages "
        "where every user may read them"
    )


def _limits_problem(pid: int) -> str | None:
    """Whether we may set the limits of another user's process, which takes a capability."""
    if sys.platform == "linux":
        try:
            resource.prlimit(pid, resource.RLIMIT_DATA)
        except PermissionError:
            return (
                "this machine does not let root limit the memory of another user's process; add "
                "the capability CAP_SYS_RESOURCE"
            )
        except ProcessLookupError:  # ended already; why is told by its output
            return None
    return None
