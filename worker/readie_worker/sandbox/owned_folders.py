"""Folders that last as long as their owner: what a crash left behind, the next owner removes."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

LOCK = "lock"  # held by the living owner


class OwnedFolder:
    """A new folder in ``parent``, which several owners may share; ``prefix`` says what it is for."""

    def __init__(self, parent: Path, prefix: str, mode: int = 0o700) -> None:
        self._lock: int | None = None
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self.path.chmod(mode)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_orphans(parent, prefix)

    def remove(self) -> None:
        """Everything in it. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


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
