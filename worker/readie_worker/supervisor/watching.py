"""The supervisor's loop: it reads notes, and acts on the end of them or on silence."""

import logging
import os
import select
import subprocess
import time

from readie_worker.supervisor.ending import GroupWard, ProcessWard, Ward, end_all
from readie_worker.supervisor.notes import (
    LONGEST_NOTE,
    AfterwardsNote,
    Beat,
    Goodbye,
    GroupNote,
    Note,
    ProcessNote,
    decode,
)

KILL_WITHIN_S = 2.0  # a lease is longer than a beat and this: nothing runs when its call runs again
GLANCE_S = 0.5  # between two looks at the clock
AFTERWARDS_S = 60.0  # for a command that removes leftovers: unmounting, network namespaces

log = logging.getLogger(__name__)


class Watch:
    """Reads notes from ``descriptor`` until its end.

    ``silence_s``: a worker that has beaten once and is not heard for so long is stopped, or hangs;
    it may come back, and finds its sandboxes gone. A pause of the whole machine is no silence.
    """

    def __init__(self, descriptor: int, silence_s: float) -> None:
        self._descriptor = descriptor
        self._silence_s = silence_s
        self._wards: list[Ward] = []
        self._afterwards: list[AfterwardsNote] = []
        self._rest = b""
        self._goodbye = False

    def run(self) -> None:
        """Until the worker is gone; then its sandboxes are, too."""
        os.set_blocking(self._descriptor, False)
        silent: float | None = None  # seconds heard nothing; None before the first beat
        told = False
        seen = time.monotonic()
        while True:
            readable, _, _ = select.select([self._descriptor], [], [], GLANCE_S)
            now = time.monotonic()
            if silent is not None:
                # This process may have been paused together with the worker: count no more than a
                # glance at a time.
                silent += min(now - seen, 2 * GLANCE_S)
            seen = now
            if readable:
                notes = self._receive()
                if notes is None:
                    break
                if any(isinstance(note, Beat) for note in notes):
                    silent, told = 0.0, False
            if silent is not None and silent > self._silence_s:
                self._on_silence(silent, first=not told)
                told = True
        if not self._goodbye:
            self._on_death()

    def _receive(self) -> list[Note] | None:
        """What has been written; None at the end."""
        try:
            data = os.read(self._descriptor, 16 * LONGEST_NOTE)
        except BlockingIOError:
            return []
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        notes = []
        for line in lines:
            try:
                notes.append(decode(line))
            except ValueError as error:
                log.warning("%s", error)
        for note in notes:
            self._take(note)
        return notes

    def _take(self, note: Note) -> None:
        match note:
            case ProcessNote(pid):
                self._forget_what_is_over()
                try:
                    self._wards.append(ProcessWard(pid))
                except ProcessLookupError:
                    return
            case GroupNote(folder):
                self._wards.append(GroupWard(folder))
            case AfterwardsNote():
                self._afterwards.append(note)
            case Goodbye():
                self._goodbye = True
            case Beat():
                return

    def _forget_what_is_over(self) -> None:
        for ward in [ward for ward in self._wards if ward.over]:
            ward.close()
            self._wards.remove(ward)

    def _on_silence(self, silent: float, *, first: bool) -> None:
        if first:
            log.warning("worker not heard for %.0f s: its sandboxes are ended", silent)
        self._end_all()

    def _on_death(self) -> None:
        log.warning("worker is gone: its sandboxes are ended")
        self._end_all()
        for note in self._afterwards:
            try:
                subprocess.run(note.command, timeout=AFTERWARDS_S, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                log.warning("leftovers remain until the next start: %s", error)

    def _end_all(self) -> None:
        if not end_all(self._wards, KILL_WITHIN_S):
            log.error("some processes of sandboxes do not end")
