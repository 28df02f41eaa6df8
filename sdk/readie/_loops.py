"""Tells whether a blocking call would stop an event loop that somebody relies on."""

import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from types import FrameType

from readie._errors import BlockingCallInEventLoopError

# Their event loop runs the cell that a person has just started: it is theirs to block.
_NOTEBOOKS = frozenset({"IPython", "ipykernel", "xeus_python", "pyodide"})


def refuse_in_coroutine(name: str, instead: str) -> None:
    """Raise `BlockingCallInEventLoopError` when a coroutine of a running loop is calling.

    The top level of a notebook cell is fine, although the kernel's own loop runs it.
    """
    # Another thread may be importing asyncio just now; then no loop runs in this one.
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running_loop is None or running_loop() is None:
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _NOTEBOOKS:
            return
        flags = frame.f_code.co_flags
        if flags & (CO_COROUTINE | CO_ASYNC_GENERATOR) and not _is_cell(frame):
            raise BlockingCallInEventLoopError(
                f"{name} would block the event loop that is running here: use `{instead}`"
            )
        frame = frame.f_back


def _is_cell(frame: FrameType) -> bool:
    """A cell that awaits something at its top level is compiled as a coroutine."""
    name = frame.f_code.co_name
    return name == "<module>" or name.startswith("<cell line")
