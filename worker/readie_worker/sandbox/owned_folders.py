"""Folders that last as long as their owner: what a crash left behind, the next owner removes."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

LOCK = "lock"  # held by the living owner

_TRIES = 10  # each lost one means that another owner took the folder for an orphan just then


class OwnedFolder:
    """A new folder in ``parent``, which several owners may share; ``prefix`` says what it is for."""

    def __init__(self, parent: Path, prefix: str, mode: int = 0o700) -> None:
        self._lock: int | None
        self.path, self._lock = make_locked(
            lambda: Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        )
        self.path.chmod(mode)
        _remove_orphans(parent, prefix)

    def remove(self) -> None:
        """Everything in it. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def make_locked(make: Callable[[], Path]) -> tuple[Path, int]:
    """A folder that ``make`` has made, and the descriptor that holds its lock. Raises `OSError`."""
    for _ in range(_TRIES):
        folder = make()
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Until here it looked like an orphan to everybody else.
            if os.fstat(lock).st_nlink:
                return folder, lock
        except BlockingIOError:
            pass  # somebody is just removing it
        os.close(lock)
    raise OSError(errno.EBUSY, "other owners come and go here", folder)


def _remove_orphans(parent: Path, prefix: str) -> None:
    """Folders whose owner is gone: nobody holds their lock."""
    for folder in parent.glob(f"{prefix}*"):
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # just being made, or removed by somebody else
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
