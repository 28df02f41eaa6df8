"""What every gateway does once a second: end what time has ended, rebuild what was deleted."""

import time

from readie_infra.store import endings
from readie_infra.store.fleet import Fleet
from readie_infra.store.pulses import Pulses
from readie_infra.store.reading import outcome_text
from readie_infra.store.settling import Calm
from readie_infra.store.steps import milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import Limits, Swept


class Sweeping(Fleet):
    _limits: Limits
    _pulses: Pulses
    _calm: Calm
    _rebuild_from: int

    async def sweep(self, limit: int = 1_000) -> Swept:
        """Look at ``limit`` calls that are due and at ``limit`` others, from where it stopped.

        Queued past due → ``expired``; running past due → ``lost``, or ``cancelled`` when that was
        asked for; a lapsed lease → queued again, a few times. Queued calls whose entry vanished
        are queued again. Sessions that were idle too long end. A worker whose beat stands still is
        dead: it is made to `leave`. Any number of gateways may sweep at once, about once a second
        each. What workers hold is left to them for a while after an outage or a jump of the clock.
        """
        seconds, microseconds = await self._steps.ask("TIME")
        server_s = int(seconds) + int(microseconds) / 1_000_000
        calm = self._calm.lasts(server_s, self._steps.connections, time.monotonic())
        expired, lost, cancelled, requeued, idle = await self._steps.run(
            "sweep",
            limit,
            self._limits.max_leases,
            milliseconds(DEFAULT_RESULT_TTL_S),
            outcome_text(endings.expired()),
            outcome_text(endings.lost()),
            outcome_text(endings.cancelled()),
            outcome_text(endings.session_busy()),
            outcome_text(endings.session_ended("its sandbox was given up")),
            outcome_text(endings.expired_again()),
            "1" if calm else "0",
        )
        self._rebuild_from, rebuilt = await self._steps.run("rebuild", self._rebuild_from, limit)
        requeued_of_dead, lost_of_dead = await self._bury()
        return Swept(
            expired=_text(expired),
            lost=_text(lost) + lost_of_dead,
            cancelled=_text(cancelled),
            requeued=_text(requeued) + requeued_of_dead,
            rebuilt=_text(rebuilt),
            sessions=_text(idle),
        )

    async def _bury(self) -> tuple[list[str], list[str]]:
        found = await self._steps.run("pulses")
        beats = {boot.decode(): count for boot, count in found}
        dead = self._pulses.dead(beats, self._steps.connections, time.monotonic())
        requeued: list[str] = []
        lost: list[str] = []
        for boot in dead:
            of_this_one = await self.leave(boot)
            requeued += of_this_one[0]
            lost += of_this_one[1]
        return requeued, lost


def _text(ids: list[bytes]) -> list[str]:
    return [call.decode() for call in ids]
