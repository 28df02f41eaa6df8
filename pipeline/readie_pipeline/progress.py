"""Progress in plain lines, for logs and for output that another process reads and repeats."""

import time
from collections.abc import Callable, Generator, Sequence


class LineProgress:
    """``say`` takes one line, ``every_s`` seconds after the one before it and not sooner."""

    def __init__(
        self,
        say: Callable[[str], None],
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock = clock

    def track(self, names: Sequence[str], doing: str) -> Generator[str, None, None]:
        """Go through ``names``, saying now and then how many are done and how long the rest takes."""
        began = said = self._clock()
        for done, name in enumerate(names):
            now = self._clock()
            if done and now - said >= self._every_s:
                left = (now - began) / done * (len(names) - done)
                self._say(f"{doing}: {done} of {len(names)} done, about {left:.0f} s left")
                said = now
            yield name
