"""Where captures on this machine keep what lasts no longer than they do.

One folder for all captures of a user, so that each finds what a killed one has left: its sandboxes,
which the runtimes end, and its files.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_pipeline.errors import CaptureError

_IMAGES = "images-"
_LOCK = ".lock"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def scratch_folder() -> Path:
    """Of this user alone. Raises `CaptureError`: somebody else has made it."""
    folder = Path(tempfile.gettempdir(), f"readie-capture-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & _OTHERS_MAY_WRITE
    if not private or found.st_uid != os.geteuid():
        raise CaptureError(f"{folder} is not this user's own folder; remove it, or set TMPDIR")
    return folder


@contextmanager
def image_folder() -> Iterator[Path]:
    """A folder for one checkpoint's images, removed at the end; those of the dead are removed too."""
    parent = scratch_folder()
    _remove_orphans(parent)
    folder = Path(tempfile.mkdtemp(prefix=_IMAGES, dir=parent))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_orphans(parent: Path) -> None:
    for folder in parent.glob(f"{_IMAGES}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # just being made, or removed by somebody else
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
