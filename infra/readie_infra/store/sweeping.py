"""What every gateway does once a second: end what time has ended, rebuild what was deleted."""

from readie_infra.store import endings
from readie_infra.store.reading import outcome_text
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import Limits, Swept


class Sweeping:
    _steps: Steps
    _limits: Limits
    _rebuild_from: int

    async def sweep(self, limit: int = 1_000) -> Swept:
        """Look at ``limit`` calls that are due and at ``limit`` others, from where it stopped.

        Queued past due → ``expired``; running past due → ``lost``, or ``cancelled`` when that was
        asked for; a lapsed lease → queued again, a few times. Queued calls whose entry vanished
        are queued again. Any number of gateways may sweep at once.
        """
        expired, lost, cancelled, requeued = await self._steps.run(
            "sweep",
            limit,
            self._limits.max_leases,
            milliseconds(DEFAULT_RESULT_TTL_S),
            outcome_text(endings.expired()),
            outcome_text(endings.lost()),
            outcome_text(endings.cancelled()),
        )
        self._rebuild_from, rebuilt = await self._steps.run("rebuild", self._rebuild_from, limit)
        return Swept(
            expired=_text(expired),
            lost=_text(lost),
            cancelled=_text(cancelled),
            requeued=_text(requeued),
            rebuilt=_text(rebuilt),
        )


def _text(ids: list[bytes]) -> list[str]:
    return [call.decode() for call in ids]
