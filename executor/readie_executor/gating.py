"""The safety gate: what a process must not hold when it is forked or saved."""

import os
import sys
import threading
from dataclasses import dataclass
from typing import Self

from readie_executor import kernel

# Open in every clone without harm: they have no position and no peer.
_HARMLESS_FILES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full"})


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a process holds that a clone cannot share: counts threads, names files."""

    threads: int
    files: frozenset[str]
    children: frozenset[int]
    cuda: bool

    @classmethod
    def take(cls) -> Self:
        torch_cuda = sys.modules.get("torch.cuda")
        return cls(
            threads=_thread_count(),
            files=frozenset(_open_files()),
            children=frozenset(kernel.children()),
            cuda=torch_cuda is not None and bool(torch_cuda.is_initialized()),
        )

    def problem_since(self, before: "Holdings") -> str | None:
        """What an import added that forbids a checkpoint, as the end of a sentence."""
        if self.threads > before.threads:
            return f"left {self.threads - before.threads} thread(s) running"
        if files := sorted(self.files - before.files):
            return f"left open: {', '.join(files[:5])}"
        if self.children - before.children:
            return "left a child process running"
        if self.cuda and not before.cuda:
            return "initialised CUDA"
        return None


def _thread_count() -> int:
    """Native threads are counted too where the system lists them."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib stays unloaded
    except OSError:
        return threading.active_count()


def _open_files() -> list[str]:
    """Descriptors with what they refer to, such as ``"5 socket:[1234]"``."""
    found: list[str] = []
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        except OSError:  # the listing's own descriptor
            continue
        if target not in _HARMLESS_FILES:
            found.append(f"{descriptor} {target}")
    return found
