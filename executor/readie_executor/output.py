"""The call's standard streams: descriptors 0, 1 and 2, and what Python and C put before them."""

import contextlib
import io
import os
import sys
from typing import Any


class _Eager(io.BufferedWriter):
    """Holds nothing back, not even a line that is not complete: the process may end any moment."""

    def write(self, data: Any) -> int:
        written = super().write(data)
        self.flush()
        return written


def open_streams() -> None:
    """Give this process streams of that kind, before anything can keep the ones it has."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:  # the descriptor is closed
            continue
        stream = _eager(name, descriptor)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _eager(name: str, descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "wb", closefd=False)
    raw.name = f"<{name}>"
    stream = io.TextIOWrapper(_Eager(raw), encoding="utf-8", newline="\n")
    stream.mode = "w"  # type: ignore[misc]  # as the interpreter does it
    return stream


def _input() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")


def attach(stdout: int, stderr: int) -> None:
    """Make two pipes of the worker this process's output, and close the given descriptors."""
    for given, standard in ((stdout, 1), (stderr, 2)):
        if given != standard:
            os.dup2(given, standard)
            os.close(given)


def configure() -> None:
    """Streams that take any text, whatever the locale, and are written out at once."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, f"__{name}__")
        if not _is_usable(stream):  # an import may close it, or take its buffer away
            stream = _eager(name, descriptor) if descriptor else _input()
            setattr(sys, f"__{name}__", stream)
        setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.breakpointhook = _no_debugger


def _is_usable(stream: Any) -> bool:
    try:
        return stream is not None and not stream.closed
    except ValueError:  # "underlying buffer has been detached"
        return False


def write_line(text: str) -> None:
    """On standard output, past whatever an import has put in the place of `sys.stdout`.

    It begins a new line, as something may have been printed without an end.
    """
    flush()
    data = f"\n{text}\n".encode()
    while data:
        data = data[os.write(1, data) :]


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
