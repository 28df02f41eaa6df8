"""The safety gate: what a process must not hold when it is forked or saved."""

import os
import sys
import threading
from dataclasses import dataclass
from typing import Self

from readie_executor import kernel

# Open in every clone without harm: they have no position and no peer.
_HARMLESS_FILES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full"})


_STANDARD_STREAMS = {0: "standard input", 1: "standard output", 2: "standard error"}


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a process holds that a clone cannot share: counts threads, names files.

    ``standard`` is what the descriptors of the standard streams refer to, for those that are open.
    """

    threads: int
    files: frozenset[str]
    children: frozenset[int]
    cuda: bool
    standard: frozenset[tuple[int, int, int]]

    @classmethod
    def take(cls) -> Self:
        torch_cuda = sys.modules.get("torch.cuda")
        return cls(
            threads=_thread_count(),
            files=frozenset(_open_files()),
            children=frozenset(kernel.children()),
            cuda=torch_cuda is not None and bool(torch_cuda.is_initialized()),
            standard=frozenset(_standard_streams()),
        )

    def since(self, before: "Holdings") -> "Doings":
        """What was done to it meanwhile that forbids a checkpoint."""
        return Doings(
            threads=max(0, self.threads - before.threads),
            files=self.files - before.files,
            children=self.children - before.children,
            cuda=self.cuda and not before.cuda,
            streams=frozenset(number for number, *_ in before.standard - self.standard),
        )


@dataclass(frozen=True, slots=True)
class Doings:
    """Of one import, or of all: threads, files and children left, standard streams taken away."""

    threads: int
    files: frozenset[str]
    children: frozenset[int]
    cuda: bool
    streams: frozenset[int]

    def still(self, now: "Doings") -> "Doings":
        """What of it is not undone in ``now``, which is all that was done since the beginning."""
        return Doings(
            threads=min(self.threads, now.threads),
            files=self.files & now.files,
            children=self.children & now.children,
            cuda=self.cuda and now.cuda,
            streams=self.streams & now.streams,
        )

    @property
    def problem(self) -> str | None:
        """Why that forbids a checkpoint, as the end of a sentence."""
        if self.threads:
            return f"left {self.threads} thread(s) running"
        if self.streams:
            names = ", ".join(_STANDARD_STREAMS[number] for number in sorted(self.streams))
            return f"closed or redirected {names}"
        if self.files:
            return f"left open: {', '.join(sorted(self.files)[:5])}"
        if self.children:
            return "left a child process running"
        if self.cuda:
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


def _standard_streams() -> list[tuple[int, int, int]]:
    """Descriptor, device and inode."""
    found = []
    for descriptor in _STANDARD_STREAMS:
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue
        found.append((descriptor, status.st_dev, status.st_ino))
    return found
