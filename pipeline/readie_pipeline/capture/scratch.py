"""Where captures on this machine keep what lasts no longer than they do.

One folder for all captures of a user, so that each finds what a killed one has left: its sandboxes,
which the runtimes end, and its files.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_pipeline.errors import CaptureError
from readie_worker.sandbox.owned_folders import OwnedFolder

_IMAGES = "images-"
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
    folder = OwnedFolder(scratch_folder(), _IMAGES)
    try:
        yield folder.path
    finally:
        folder.remove()
