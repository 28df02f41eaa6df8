"""Which workers are dead, told by whoever looks at their beats and by nobody's clock but its own."""

from collections.abc import Mapping


class Pulses:
    """A worker is dead when its beat was seen unchanged for ``silence_s`` seconds.

    Only looking counts: a time in which the server could not be reached, or in which the looker
    itself stood still, makes nobody older. So neither an outage nor a jump of a clock kills.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._connection = 0
        self._looked = float("-inf")
        self._seen: dict[str, tuple[int, float]] = {}  # boot → beats, since when so many

    def dead(self, beats: Mapping[str, int], connection: int, now: float) -> list[str]:
        """Look at all ``beats``. ``now`` is monotonic; ``connection`` numbers the connection."""
        if connection != self._connection or now - self._looked > self._silence_s / 2:
            self._seen.clear()
        self._connection, self._looked = connection, now
        before, self._seen = self._seen, {}
        for boot, count in beats.items():
            known = before.get(boot)
            self._seen[boot] = known if known and known[0] == count else (count, now)
        return [boot for boot, (_, since) in self._seen.items() if now - since >= self._silence_s]
