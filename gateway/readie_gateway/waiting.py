"""Who waits for which call in this process, and what wakes them: one doorbell reader for all."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from readie_gateway.connections import ClientGoneError
from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore, Ending

log = logging.getLogger(__name__)

SWEEP_S = 1.0  # a lost doorbell is made good, and what time has ended is ended, this often
DOORBELL_BLOCK_S = 2.0  # below the store's own limit for a blocking command
ABANDON_GRACE_S = 10.0  # how long a waited call lives on after its client vanished
CANCELS_AT_ONCE = 100


class Watch:
    """One request's wait for one call. A context manager; rings are kept while nobody waits."""

    def __init__(self, board: "WaitingBoard", call_id: str) -> None:
        self._board = board
        self.call_id = call_id
        self._rung = False
        self.ending: Ending | None = None  # told by the last ring
        self._waiter: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._board.add(self)
        return self

    def move(self, call_id: str) -> None:
        """Wait for another call instead."""
        self._board.remove(self)
        self.call_id = call_id
        self._board.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._board.remove(self)

    @contextmanager
    def ended_with_client(self, waited: bool) -> Iterator[None]:
        """Swallows that the client has gone: after a grace its ``waited`` call is cancelled."""
        try:
            yield
        except ClientGoneError:
            if waited:
                self._board.abandon(self.call_id)

    @property
    def closing(self) -> bool:
        """The gateway is being stopped: answer with what is known."""
        return self._board.closing

    def ring(self, ending: Ending | None = None) -> None:
        """Something may have happened to the call; ``ending`` where it is known what."""
        self._rung = True
        self.ending = ending or self.ending
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self, within_s: float) -> bool:
        """Until the next ring, at most ``within_s`` seconds; ``False`` when it did not ring."""
        if not self._rung and within_s > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(within_s, _finish, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        rung, self._rung = self._rung, False
        return rung


class WaitingBoard:
    """Every `Watch` of this gateway, by call.

    ``boot`` is the gateway's boot id: the store rings its doorbell stream. One blocking reader
    serves all requests; a sweep each second covers bells that were lost.
    """

    def __init__(
        self, store: CallStore, boot: str, *, abandon_grace_s: float = ABANDON_GRACE_S
    ) -> None:
        self.boot = boot
        self.closing = False
        self._store = store
        self._abandon_grace_s = abandon_grace_s
        self._watches: dict[str, set[Watch]] = {}
        self._abandoned: dict[str, float] = {}  # call → loop time at which it is cancelled
        self._last_bell = "0-0"

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(watches) for watches in self._watches.values())

    def watch(self, call_id: str) -> Watch:
        """Enter it before the call can end, so that no ring is missed."""
        return Watch(self, call_id)

    def add(self, watch: Watch) -> None:
        self._watches.setdefault(watch.call_id, set()).add(watch)
        self._abandoned.pop(watch.call_id, None)

    def remove(self, watch: Watch) -> None:
        watches = self._watches[watch.call_id]
        watches.discard(watch)
        if not watches:
            del self._watches[watch.call_id]

    def abandon(self, call_id: str) -> None:
        """The client of a waited call vanished: cancel it, unless someone comes back in time.

        Known to this gateway alone: come back to the same one, or with the same idempotency key.
        """
        deadline = asyncio.get_running_loop().time() + self._abandon_grace_s
        self._abandoned.setdefault(call_id, deadline)

    def close(self) -> None:
        """Let every waiting request answer now; those that come later do not wait."""
        self.closing = True
        self._ring_all()

    async def run_doorbells(self) -> None:
        """Read this gateway's doorbells, for ever. Raises `StoreUnavailableError`."""
        while True:
            self._last_bell, calls = await self._store.doorbells(
                self.boot, self._last_bell, DOORBELL_BLOCK_S
            )
            for call_id, ending in calls.items():
                for watch in self._watches.get(call_id, ()):
                    watch.ring(ending)
            await asyncio.sleep(0)  # those that were rung answer before the next wait begins

    async def run_sweep(self) -> None:
        """End what time has ended, each second, for ever. Raises `StoreUnavailableError`."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._ring_all()
            await self._cancel_abandoned()
            swept = await self._store.sweep()
            if ended := swept.ended:
                log.info("the sweep ended %d calls, the first is %s", len(ended), ended[0])

    def _ring_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.ring()

    async def _cancel_abandoned(self) -> None:
        now = asyncio.get_running_loop().time()
        over = [
            call_id
            for call_id, deadline in self._abandoned.items()
            if deadline <= now and call_id not in self._watches
        ]
        for call_id in over[:CANCELS_AT_ONCE]:
            if call_id not in self._abandoned:
                continue  # its client came back while others were cancelled
            try:
                await self._store.cancel(call_id, "its client went away")
            except StoreUnavailableError:
                log.warning("could not cancel %s, whose client went away; will try again", call_id)
                raise
            self._abandoned.pop(call_id, None)
            log.info("cancelled %s: its client went away", call_id)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
