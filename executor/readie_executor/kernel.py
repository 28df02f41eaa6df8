"""What Python's os module lacks: ties between processes (Linux; elsewhere they do not exist)."""

import ctypes
import functools
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int | None = None) -> None:
    """Have this process killed when the thread that started it ends.

    ``parent`` is its pid, where known: a parent that was gone already ends this process now. The
    kernel forgets the wish when the process changes its user, so call this after that.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Pids of this process's children, adopted ones included; empty where it cannot be told."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _c_library().prctl(option, value, 0, 0, 0)


@functools.cache
def _c_library() -> ctypes.CDLL:
    """Found once: clones of a zygote inherit it, where finding it takes each a third of a ms."""
    return ctypes.CDLL(None)
