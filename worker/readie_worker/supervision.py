"""The worker's end of its supervisor: starts it, tells it what to end, and shows signs of life."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from readie_worker.supervisor.ending import SUPPORTED
from readie_worker.supervisor.notes import (
    AfterwardsNote,
    Beat,
    Goodbye,
    GroupNote,
    Note,
    ProcessNote,
    encode,
)

END_WITHIN_S = 5.0  # after the goodbye, which takes it milliseconds

log = structlog.stdlib.get_logger(__name__)


class Supervision:
    """A supervisor process of this worker's own; another takes its place when it dies.

    Safe to use from any thread. ``silence_s``: the supervisor ends the sandboxes when it has heard
    no `beat` for so long, after the first. Where it is not `SUPPORTED` there is none.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._facts: list[Note] = []  # told again to one that takes over
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._open = False

    def start(self) -> None:
        """Raises `OSError` when no process can be had."""
        with self._lock:
            self._open = SUPPORTED
            if self._open:
                self._start_locked()

    @property
    def pid(self) -> int:
        """Of the supervisor as it is now; 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    def process(self, pid: int) -> None:
        """A process of ours whose descendants are sandboxes."""
        self._tell(ProcessNote(pid))

    def process_over(self, pid: int) -> None:
        """It has ended; the supervisor saw that by itself, but another one must not be told of it."""
        with self._lock, contextlib.suppress(ValueError):
            self._facts.remove(ProcessNote(pid))

    def group(self, folder: Path) -> None:
        """A cgroup of ours with nothing but sandboxes in it."""
        self._tell(GroupNote(folder))

    def afterwards(self, command: Sequence[str]) -> None:
        """To be run when this worker was killed, after its sandboxes have ended."""
        self._tell(AfterwardsNote(command))

    def beat(self) -> None:
        with self._lock:
            self._send_locked(Beat())

    def close(self) -> None:
        """Everything has ended in good order. Idempotent."""
        with self._lock:
            self._open = False
            process, self._process = self._process, None
            if process is None:
                return
            with contextlib.suppress(OSError):
                os.write(self._pipe, encode(Goodbye()))
            os.close(self._pipe)
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tell(self, fact: Note) -> None:
        with self._lock:
            self._facts.append(fact)
            self._send_locked(fact)

    def _send_locked(self, note: Note) -> None:
        if not self._open:
            return
        try:
            if self._process is not None:
                os.write(self._pipe, encode(note))
                return
        except OSError as error:  # it is gone, or has not read for hours: the pipe is full
            log.warning("another supervisor takes over", reason=str(error))
            self._drop_locked()
        try:
            self._start_locked()  # which tells it all facts
            if isinstance(note, Beat):
                os.write(self._pipe, encode(note))
        except OSError as error:
            log.warning("no supervisor for now", reason=str(error))  # the next beat tries again

    def _start_locked(self) -> None:
        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            # A session of its own: what ends the worker's process group must not end this one.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "readie_worker.supervisor", str(self._silence_s)],
                stdin=reading,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)
        for fact in self._facts:
            os.write(self._pipe, encode(fact))

    def _drop_locked(self) -> None:
        process, self._process = self._process, None
        os.close(self._pipe)
        if process is not None:
            process.kill()
            process.wait()
