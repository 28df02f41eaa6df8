"""The standard streams of a sandbox: `/dev/null` in, two pipes out whose ends the worker owns."""

import contextlib
import os
from dataclasses import dataclass

from readie_worker.sandbox.gvisor.runsc import Stdio


@dataclass(slots=True)
class Pipes:
    """``stdout`` and ``stderr`` are non-blocking read ends; ``stdio`` is what a container gets."""

    stdio: Stdio
    stdout: int
    stderr: int

    @classmethod
    def open(cls) -> "Pipes":
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        os.set_blocking(stdout, False)
        os.set_blocking(stderr, False)
        stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return cls(Stdio(stdin, stdout_end, stderr_end), stdout, stderr)

    def close_container_ends(self) -> None:
        """After `create`: only the sandbox holds them now, so that its end is our end of file."""
        for descriptor in (self.stdio.stdin, self.stdio.stdout, self.stdio.stderr):
            _close(descriptor)
        self.stdio = Stdio(-1, -1, -1)

    def close(self) -> None:
        self.close_container_ends()
        for descriptor in (self.stdout, self.stderr):
            _close(descriptor)
        self.stdout = self.stderr = -1


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.close(descriptor)
