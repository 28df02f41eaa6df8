"""Child processes that live as long as their supervisor, and not a moment longer."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
LAST_LINES = 15  # of a log that are shown when its process ends badly
MAX_RESTARTS = 5  # within RESTART_WINDOW_S; more is a fault that restarting does not mend
RESTART_WINDOW_S = 60.0
RESTART_DELAY_S = 1.0


class Child:
    """One process with a log file. ``start`` may be called again after it has ended."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._starts: list[float] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """In a session of its own: Ctrl-C in the terminal reaches the supervisor alone, which then
        stops its children in order."""
        self._starts.append(time.monotonic())
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_tie_to_parent() if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def may_restart(self) -> bool:
        """Whether it ended seldom enough, and long enough ago, to be started again now."""
        now = time.monotonic()
        self._starts = [at for at in self._starts if now - at < RESTART_WINDOW_S]
        return len(self._starts) <= MAX_RESTARTS

    def is_due(self) -> bool:
        return not self._starts or time.monotonic() - self._starts[-1] >= RESTART_DELAY_S

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float) -> None:
        """Until it has ended; killed when it has not after ``timeout`` seconds."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """How it ended, and the end of its log."""
        status = self._process.returncode if self._process is not None else None
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"the {self.name} ended with status {status}; see {self.log}", *lines])


def _tie_to_parent() -> Callable[[], None]:
    """What a new child does first: ask the kernel for a signal when its parent dies."""
    prctl = ctypes.CDLL(None).prctl  # found here: a new child should do as little as it can
    parent = os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return tie
