"""When a pointer that could not be followed is tried again."""

import time

from readie_infra.bucket import FoundPointer

LONGEST_PAUSE_S = 300.0  # between tries that fail


class PutOff:
    """A pointer that could not be followed is tried again after a pause, which grows."""

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self.forget()

    def forget(self) -> None:
        """Whatever failed may be tried at once."""
        self._etag = ""
        self._pause = 0.0
        self._until = 0.0

    def applies_to(self, found: FoundPointer) -> bool:
        return found.etag == self._etag and time.monotonic() < self._until

    def next_time(self, found: FoundPointer) -> None:
        """It is about to be tried; if that fails, the next try has to wait."""
        again = found.etag == self._etag
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S) if again else self._shortest
        self._etag, self._until = found.etag, time.monotonic() + self._pause
