"""The call's standard streams: descriptors 0, 1 and 2, and what Python and C put before them."""

import contextlib
import io
import os
import sys
from typing import Any


def attach(stdout: int, stderr: int) -> None:
    """Make two pipes of the worker this process's output, and close the given descriptors."""
    for given, standard in ((stdout, 1), (stderr, 2)):
        if given != standard:
            os.dup2(given, standard)
            os.close(given)


def configure() -> None:
    """Streams that take any text, whatever the locale, and hold no complete line back."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
            )
    sys.breakpointhook = _no_debugger


def flush() -> None:
    """Write out what Python's streams still hold, also a replaced `sys.stdout`."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # closed by the function, or of any type at all
            if stream is not None:
                stream.flush()


def flush_c_library() -> None:
    """Write out what C code has printed and stdio still holds.

    ctypes is loaded here and not earlier: it is needed only now, when the answer is on its way.
    """
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)


def close() -> None:
    """The end of the output: the worker need not wait until the process's memory is taken apart."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed by the function
            os.close(descriptor)


def _no_debugger(*_: Any, **__: Any) -> None:
    os.write(2, b"readie: breakpoint() is ignored: there is no terminal in a sandbox\n")
