"""What calls import, remembered for the pipeline: names of public modules, never code, never whose.

Noting a call touches no store: sets are counted in memory and written every few seconds. A gateway
that is killed forgets those seconds; a plan needs proportions, not a ledger.
"""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from readie_infra.store import CallStore
from readie_wire.envelope import CallHeader
from readie_wire.extracting import is_standard_library

log = logging.getLogger(__name__)

WRITE_EVERY_S = 5.0
DAY_S = 86_400.0
MAX_SET_BYTES = 4_096  # about a hundred names; more is generated code, and no plan profits from it
MAX_UNWRITTEN = 5_000  # distinct sets in memory while the store is away
_REMEMBERED = 4_096  # distinct import lists; a fleet runs far fewer functions at a time
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class ImportLedger:
    """Counts the import sets of calls, kept for ``days`` days in the store."""

    def __init__(self, store: CallStore, days: int) -> None:
        self.days = days
        self._store = store
        self._writing = asyncio.Lock()  # one at a time: who comes second finds less to write
        self._unwritten: Counter[tuple[str, str]] = Counter()  # by day and set
        self._warned_of = ""

    def __len__(self) -> int:
        """How many distinct sets are noted and not written."""
        return len(self._unwritten)

    def note(self, header: CallHeader) -> None:
        """A call was accepted."""
        text = import_set(tuple(header.imports), tuple(header.modules))
        entry = (_today().isoformat(), text)
        if text and (entry in self._unwritten or len(self._unwritten) < MAX_UNWRITTEN):
            self._unwritten[entry] += 1

    async def run(self) -> None:
        """Write what was noted, for ever. Raises `StoreUnavailableError`."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what was noted. Raises `StoreUnavailableError`; what was not written is kept."""
        async with self._writing:
            for day in sorted({day for day, _ in self._unwritten}):
                await self._write(day)

    async def _write(self, day: str) -> None:
        counts = {text: count for (of, text), count in self._unwritten.items() if of == day}
        left_out = await self._store.record_imports(day, counts, (self.days + 1) * DAY_S)
        for text, count in counts.items():
            self._unwritten[day, text] -= count  # more may have been noted meanwhile
        self._unwritten = +self._unwritten
        if left_out and self._warned_of != day:
            self._warned_of = day
            log.warning("%s has more distinct import sets than are kept of a day", day)

    async def lines(self, days: int) -> AsyncIterator[bytes]:
        """What calls of the last ``days`` days imported, today's among them: a JSON object a line.

        Raises `StoreUnavailableError`.
        """
        for day in _last(days):
            counts = await self._store.recorded_imports(day)
            if counts:
                yield b"".join(
                    b'{"imports":%b,"count":%d,"day":"%b"}\n' % (text, count, day.encode())
                    for text, count in counts.items()
                )


@lru_cache(maxsize=_REMEMBERED)
def import_set(imports: tuple[str, ...], own: tuple[str, ...]) -> str:
    """The canonical JSON of a set: sorted, without the standard library and the caller's ``own``.

    Empty for a set that is not kept: one of more than `MAX_SET_BYTES`.
    """
    names = {
        name
        for name in imports
        if name.isascii()
        and _MODULE.fullmatch(name)
        and not is_standard_library(name)
        and name.partition(".")[0] not in (*own, "__main__")
    }
    text = json.dumps(sorted(names), separators=(",", ":"))
    return text if len(text) <= MAX_SET_BYTES else ""


def _today() -> date:
    return datetime.now(UTC).date()


def _last(days: int) -> Sequence[str]:
    today = _today()
    return [(today - timedelta(days=back)).isoformat() for back in range(days)]
