"""What calls import, counted by day: the raw material of a plan."""

from collections.abc import Mapping, Sequence

from readie_infra.store.reading import pairs
from readie_infra.store.steps import Steps, milliseconds
from readie_wire.keys import Keys

SETS_A_DAY = 2_000  # distinct ones; a fleet runs far fewer functions, and only a flood has more
SETS_A_STEP = 500  # written at once; the server does nothing else meanwhile


class Recording:
    _steps: Steps
    _keys: Keys

    async def record_imports(self, day: str, counts: Mapping[str, int], ttl_s: float) -> int:
        """Add to the counts of a day (``2026-11-29``), which is forgotten after ``ttl_s``.

        A set is a JSON list of module names, written the same way each time. Answers how many sets
        were left out because the day has `SETS_A_DAY` others. Where an answer is lost with its
        connection, its sets are counted twice.
        """
        left_out = 0
        words = [word for pair in counts.items() for word in pair]
        for start in range(0, len(words), 2 * SETS_A_STEP):
            batch: Sequence[str | int] = words[start : start + 2 * SETS_A_STEP]
            left_out += int(
                await self._steps.run(
                    "record_imports", day, milliseconds(ttl_s), SETS_A_DAY, *batch
                )
            )
        return left_out

    async def recorded_imports(self, day: str) -> dict[bytes, int]:
        """The sets of a day with their counts, the most frequent first."""
        flat = await self._steps.ask("HGETALL", self._keys.imports(day))
        counts = {text: int(count) for text, count in pairs(flat).items()}
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
