"""Making sure that what was written is on the disk."""

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
