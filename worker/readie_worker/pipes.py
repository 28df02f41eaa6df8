"""Reads a sandbox's two output pipes on the event loop, promptly, so that no writer ever blocks."""

import asyncio
import contextlib
import os
from collections.abc import Callable

from readie_worker.output import Output, Stream

READ_BYTES = 64 * 1024  # the capacity of a Linux pipe: one read empties it
READS_PER_TURN = 8  # a sandbox that prints without end must not keep the loop to itself
READS_AT_THE_END = 32  # 2 MiB: more than a pipe holds, unless somebody enlarged it


class Pipes:
    """Owns the read ends of stdout and stderr, and fills ``output``.

    ``on_output`` is called after each turn that read something. Whatever one process wrote to one
    stream stays in order; between the two streams the order is that of reading.
    """

    on_output: Callable[[], None] | None

    def __init__(self, stdout: int, stderr: int, output: Output) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._open: dict[Stream, int] = {"stdout": stdout, "stderr": stderr}
        self._ended = self._loop.create_future()
        self.on_output = None
        for stream, fd in self._open.items():
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._turn, stream)

    def read_now(self) -> None:
        """Take what is in the pipes at this moment; bounded, for a writer may never rest."""
        for stream in tuple(self._open):
            reads = 0
            while reads < READS_AT_THE_END and self._read(stream):
                reads += 1

    def redirect(self, output: Output) -> None:
        """What comes from now on is another call's."""
        self._output = output
        self.on_output = None

    async def read_to_end(self, grace: float) -> None:
        """Until both pipes are closed at the other end, at most ``grace`` seconds.

        A process that the function left behind may hold a pipe open for ever; it is not waited for.
        """
        self.read_now()
        if self._open:
            await asyncio.wait({self._ended}, timeout=grace)
            self.read_now()

    def close(self) -> None:
        """Stop reading and close both ends. Idempotent."""
        for stream in tuple(self._open):
            self._end(stream)

    def _turn(self, stream: Stream) -> None:
        reads = 0
        while reads < READS_PER_TURN and self._read(stream):
            reads += 1
        if self.on_output is not None:
            self.on_output()

    def _read(self, stream: Stream) -> bool:
        """Read once; tell whether there may be more."""
        fd = self._open.get(stream)
        if fd is None:
            return False
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end(stream)
            return False
        self._output.feed(stream, data)
        # A short read emptied the pipe; only a full one may have left something behind.
        return len(data) == READ_BYTES

    def _end(self, stream: Stream) -> None:
        fd = self._open.pop(stream)
        self._loop.remove_reader(fd)
        with contextlib.suppress(OSError):
            os.close(fd)
        if not self._open and not self._ended.done():
            self._ended.set_result(None)
