"""Progress in plain lines, for output that another process reads and repeats."""

import time
from collections.abc import Callable, Generator, Sequence

EVERY_S = 5.0  # between lines: often enough to see that it goes on, seldom enough to read


class LineProgress:
    """``say`` takes one line. Nothing is said of what is done before the first `EVERY_S`."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock

    def track(self, names: Sequence[str], doing: str) -> Generator[str, None, None]:
        """Go through ``names``, saying now and then how many are done and how long the rest takes."""
        began = said = self._clock()
        for done, name in enumerate(names):
            now = self._clock()
            if done and now - said >= EVERY_S:
                left = (now - began) / done * (len(names) - done)
                self._say(f"{doing}: {done} of {len(names)} done, about {left:.0f} s left")
                said = now
            yield name
