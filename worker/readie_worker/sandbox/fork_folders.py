"""The folder of one runtime: private folders for its sandboxes, and what a crash left behind."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "fork-"
LOCK = "lock"  # held by the living owner of a run folder
# Others may pass through to the folder that is theirs, but list nothing.
PASS_THROUGH = 0o711
PRIVATE = 0o700


class RunFolder:
    """A folder of this runtime's own inside ``parent``, which several runtimes may share."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
        self._lock: int | None = None
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self.path.chmod(PASS_THROUGH)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_orphans(parent)

    def create(self, name: str) -> Path:
        """A private folder of that name."""
        folder = self.path / name
        folder.mkdir(mode=PRIVATE)
        return folder

    def remove(self) -> None:
        """Everything in it. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _remove_orphans(parent: Path) -> None:
    """Run folders whose owner is gone: nobody holds their lock."""
    for folder in parent.glob(f"{PREFIX}*"):
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
