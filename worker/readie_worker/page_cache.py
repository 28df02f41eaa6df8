"""What of a file the page cache holds, and how it gets there without being in anybody's way."""

import ctypes
import functools
import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 20  # read at a time: a stop is noticed within a millisecond or a slow disk's ten
LEAST_URGENT = 19  # niceness; the kernel derives the priority of reads from it


def cached_bytes(path: Path) -> int | None:
    """Bytes of a file that the page cache holds now; None where that cannot be told.

    Counted in whole pages, so up to a page more than the file has. Raises `OSError`.
    """
    mincore = _mincore()
    if mincore is None:
        return None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0
        told = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        # A copy-on-write mapping, only because ctypes takes none that is read-only.
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
            place = ctypes.c_char.from_buffer(mapped)
            failed = mincore(ctypes.byref(place), ctypes.c_size_t(size), told)
            del place  # a mapping that is referred to does not close
    return None if failed else (len(told) - told.raw.count(0)) * mmap.PAGESIZE


def read_in(path: Path, stopped: Callable[[], bool]) -> None:
    """Have a file in the page cache, unless ``stopped()`` says so in between. Raises `OSError`."""
    piece = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while not stopped() and file.readinto(piece):
            pass


def yield_to_others() -> None:
    """Let the calling thread, and its reads, come after everybody else's. Linux only."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_URGENT)


@functools.cache
def _mincore() -> Callable[..., int] | None:
    library: Any = ctypes.CDLL(None)
    return getattr(library, "mincore", None)
