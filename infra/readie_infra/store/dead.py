"""Dead letters: calls that came to nothing as often as they may, kept until somebody decides."""

from readie_infra.store.reading import pairs, read_record
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import DeadLetter
from readie_wire.keys import Keys
from readie_wire.records import CallRecord

LISTED = 1_000  # the store keeps no more of one flavor


class Dead:
    _steps: Steps
    _keys: Keys

    async def dead(self, flavor: str, token: str) -> list[DeadLetter]:
        """The parked calls of a flavor and token, the oldest first."""
        found = await self._steps.ask("XRANGE", self._keys.dead(flavor), "-", "+", "COUNT", LISTED)
        letters = [_letter(entry, pairs(fields), flavor) for entry, fields in found]
        return [letter for letter in letters if letter.token == token]

    async def dead_record(self, call_id: str) -> CallRecord:
        """A parked call with its payload. Raises `ValueError` where this build cannot read it."""
        fields = await self._steps.ask("HGETALL", self._keys.call(call_id))
        return read_record(call_id, pairs(fields) if isinstance(fields, list) else fields)

    async def drop_dead(self, call_id: str) -> bool:
        """Keep it no longer. `False`: it is not parked."""
        ttl = milliseconds(DEFAULT_RESULT_TTL_S)
        return bool(await self._steps.run("drop_dead", call_id, ttl))


def _letter(entry: bytes, fields: dict[bytes, bytes], flavor: str) -> DeadLetter:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode("utf-8", "replace")

    return DeadLetter(
        call_id=text(b"call"),
        token=text(b"token"),
        flavor=flavor,
        function=text(b"function"),
        attempts=int(fields.get(b"attempt", b"0")),
        reason=text(b"reason"),
        last_words=text(b"last_words"),
        parked_ms=int(entry.split(b"-")[0]),
    )
