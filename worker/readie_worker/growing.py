"""Gives running calls more memory before they meet their limit, while the worker has some.

A look comes so often that a call which fills its memory as fast as a machine can is seen in time;
should it not be, a runtime that can lets it wait. Where a runtime cannot tell how much is in use, its
calls keep what they have.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import structlog

from readie_worker.capacity import Capacity
from readie_worker.errors import StopKind
from readie_worker.running import Running
from readie_worker.sandbox.errors import SandboxError

NEARLY = 0.9  # of its limit, from where a call gets twice as much
FILLED_PER_S = 2 << 30  # bytes a process touches at most: what one core of today manages
OFTEN_S, SELDOM_S = 0.01, 0.1  # between two looks at a call

log = structlog.stdlib.get_logger(__name__)


class MemoryWatch:
    """``calls`` are those that run now; ``busy`` is set while there are any."""

    def __init__(
        self, calls: Callable[[], Iterable[Running]], busy: asyncio.Event, capacity: Capacity
    ) -> None:
        self._calls = calls
        self._busy = busy
        self._capacity = capacity

    async def run(self) -> None:
        while True:
            await self._busy.wait()
            pauses = [await self._look(call) for call in list(self._calls())]
            await asyncio.sleep(min(pauses, default=SELDOM_S))

    async def _look(self, call: Running) -> float:
        """Seconds until the next look at it."""
        live = call.live
        if live is None or not call.go_sent or call.stopped is not None:
            return SELDOM_S
        used = await live.sandbox.memory_in_use()
        if used is None:
            return SELDOM_S
        before = call.grant.memory, call.growing
        ceiling = call.options.max_memory or self._capacity.memory
        if used >= NEARLY * call.grant.memory:
            self._extend(call, used, ceiling)
        # Where a limit makes it wait for more, it must not wait for what will not come.
        call.growing = call.grant.memory < ceiling and self._capacity.free_memory > 0
        if before != (call.grant.memory, call.growing):
            with contextlib.suppress(SandboxError, OSError):  # it has ended: its run tells how
                await live.sandbox.set_limits(call.limits)
        if used > call.grant.memory:
            call.stop(StopKind.MEMORY)
        left = NEARLY * call.grant.memory - used
        return min(max(left / FILLED_PER_S, OFTEN_S), SELDOM_S)

    def _extend(self, call: Running, used: int, ceiling: int) -> None:
        """Twice as much, and again until it is enough, as far as there is any."""
        before = wanted = call.grant.memory
        while used >= NEARLY * wanted and wanted < ceiling:
            wanted = min(2 * wanted, ceiling)
        self._capacity.extend(call.grant, wanted)
        if call.grant.memory > before:
            log.info("a call gets more memory", call=call.record.call_id, memory=call.grant.memory)
