"""The standard streams of a sandbox: `/dev/null` in, two pipes out whose ends the worker owns."""

import contextlib
import os

from readie_worker.sandbox.gvisor.runsc import Stdio


class Pipes:
    """``stdout`` and ``stderr`` are non-blocking read ends; ``stdio`` is what a container gets."""

    def __init__(self) -> None:
        self.stdout, stdout_end = os.pipe()
        self.stderr, stderr_end = os.pipe()
        for descriptor in (self.stdout, self.stderr):
            os.set_blocking(descriptor, False)
        stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.stdio = Stdio(stdin, stdout_end, stderr_end)
        self._given = [stdin, stdout_end, stderr_end]
        # A caller closes a descriptor by its number, which then may name something else; device and
        # inode of a pipe are its own.
        self._files = {fd: os.fstat(fd) for fd in (self.stdout, self.stderr)}

    def close_container_ends(self) -> None:
        """After `create`: only the sandbox holds them now, so that its end is our end of file."""
        for descriptor in self._given:
            os.close(descriptor)
        self._given.clear()

    def close(self) -> None:
        """Close what the caller has not closed. Idempotent."""
        self.close_container_ends()
        for descriptor, file in self._files.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), file):
                    os.close(descriptor)
        self._files.clear()
