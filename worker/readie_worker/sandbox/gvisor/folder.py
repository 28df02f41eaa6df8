"""The folder of one runtime: its lock tells the living from those whose owner is gone."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.mounts import unmount_below
from readie_worker.sandbox.owned_folders import LOCK, make_locked

PREFIX = "gvisor-"
OWNER_BYTES = 3  # 6 letters: interface names, which hold them, have at most 15


class RuntimeFolder:
    """A folder of this runtime's own inside ``parent``, which several may share.

    ``owner`` names everything of this runtime on the host.
    """

    def __init__(self, parent: Path) -> None:
        try:
            self.path, self._lock = make_locked(lambda: _made(parent))
        except OSError as error:
            raise RuntimeUnavailableError(
                f"the gvisor runtime cannot use the folder {parent}: {error}; name another one"
            ) from error
        self.owner = self.path.name.removeprefix(PREFIX)

    @property
    def state(self) -> Path:
        """Where `runsc` keeps what it knows of its containers."""
        return self.path / "state"

    @property
    def runs(self) -> Path:
        """A tmpfs with the run directory of each sandbox."""
        return self.path / "run"

    @property
    def root(self) -> Path:
        return self.path / "root"

    @property
    def view(self) -> Path:
        """What sandboxes see of the host, mounted read-only."""
        return self.path / "view"

    def view_of(self, run: Path) -> Path:
        """Where a sandbox sees what lies in `runs`."""
        return self.view / run.relative_to(self.path)

    def remove(self) -> None:
        remove_with_mounts(self.path)
        os.close(self._lock)


def _made(parent: Path) -> Path:
    folder = parent / f"{PREFIX}{secrets.token_hex(OWNER_BYTES)}"
    folder.mkdir(mode=0o700, parents=True)
    return folder


def remove_with_mounts(folder: Path) -> None:
    """As long as anything is mounted in it, nothing is removed; the next start tries again."""
    if unmount_below(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def orphans(parent: Path) -> Iterator[list[Path]]:
    """Folders of runtimes that are gone, locked while the block removes what they left."""
    held: list[int] = []
    found: list[Path] = []
    try:
        for folder in sorted(parent.glob(f"{PREFIX}*")):
            try:
                lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
            except OSError:  # just being made, or removed by somebody else
                continue
            held.append(lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            found.append(folder)
        yield found
    finally:
        for lock in held:
            os.close(lock)
