"""The one way to start a process for a test: it never outlives the test run, however that ends.

A run that is told to stop (`raise_as_interrupt`) unwinds its fixtures, which stop what they started. A
run that is killed cannot; the kernel then ends what was started with `tied`.
"""

import functools
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path


def tied(*command: str | Path) -> Sequence[str]:
    """The command, to be killed when we die; elsewhere than on Linux as it is.

    Start it from the main thread: the kernel's "parent" is the thread that forked.
    """
    return [*_prefix(), *map(str, command)]


def raise_as_interrupt() -> None:
    """Let SIGTERM do what Ctrl-C does: pytest then ends the test and unwinds every fixture.

    Ctrl-C is heard again in a run that was started in the background, where shells ignore it for all
    that a job starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))


@functools.cache
def _prefix() -> Sequence[str]:
    # Not a `preexec_fn`, which is no good beside threads.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
