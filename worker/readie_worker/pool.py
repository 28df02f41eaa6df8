"""Sandboxes made ahead of their calls, so that a call starts with one write.

Each serves one call and is replaced off the caller's path. Which checkpoints have some is decided
by demand: the most recently wanted come first, within a number and a memory budget. At the start
the order is that of the catalogue, where the empty checkpoint comes first.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from readie_worker.background import Background
from readie_worker.errors import NotStartedError
from readie_worker.holdings import Holdings
from readie_worker.sandbox.api import Checkpoint, Limits
from readie_worker.starting import LiveSandbox, Starter

FIRST_PAUSE_S = 0.5  # after a failed start, doubled each time
LONGEST_PAUSE_S = 30.0
IDLE_MEMORY = 1 << 30  # for a sandbox without a call, on top of what its checkpoint holds

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Shelf:
    """The sandboxes of one checkpoint."""

    checkpoint: Checkpoint
    ready: list[LiveSandbox] = field(default_factory=list)
    starting: int = 0
    pause: float = FIRST_PAUSE_S
    resting_until: float = 0.0


class Pool:
    """Holds at most ``most`` sandboxes, ``per_checkpoint`` of each checkpoint that is wanted.

    ``cost`` tells how many bytes an idle sandbox of a checkpoint keeps; ``budget`` bounds their sum.
    ``together`` bounds how many are being made at a time, those that calls wait for included: they
    go first.
    """

    def __init__(
        self,
        starter: Starter,
        holdings: Holdings,
        background: Background,
        *,
        per_checkpoint: int,
        most: int,
        cost: Callable[[Checkpoint], int],
        budget: int,
        together: int,
    ) -> None:
        self._starter = starter
        self._holdings = holdings
        self._background = background
        self._per_checkpoint = per_checkpoint
        self._most = most
        self._cost = cost
        self._budget = budget
        self._together = together
        self._shelves: dict[str, _Shelf] = {}  # by key, the most wanted last
        self._making = 0
        self._awaited = 0  # starts that a call waits for
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ready_keys(self) -> Sequence[str]:
        """Keys of the checkpoints that a sandbox waits ready for, right now."""
        return [key for key, shelf in self._shelves.items() if shelf.ready]

    @property
    def counts(self) -> dict[str, int]:
        """How many are ready of each, for the worker's record."""
        return {key: len(shelf.ready) for key, shelf in self._shelves.copy().items() if shelf.ready}

    def claim(self, key: str, *, wanted: bool = True) -> LiveSandbox | None:
        """A ready sandbox of the checkpoint ``key``, yours from now on.

        It also counts as demand, unless it is not that checkpoint which was ``wanted``.
        """
        shelf = self._shelves.get(key)
        if shelf is None:
            return None
        if wanted:
            self._shelves[key] = self._shelves.pop(key)
        while shelf.ready:
            live = shelf.ready.pop()
            if not live.connection.ended.done():
                return live
            self._starter.discard(live)
        return None

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While a call waits for a sandbox that is being started, fewer are made ahead."""
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1
            self.refill()

    def refill(self) -> None:
        """Make what is missing, in the background. Call it when nobody waits."""
        while not self._closed and self._making + self._awaited < self._together:
            shelf = self._neediest()
            if shelf is None:
                return
            shelf.starting += 1
            self._making += 1
            self._background.run("making a sandbox ahead", self._make(shelf))

    def follow_holdings(self) -> None:
        """What can be restored has changed: drop what cannot, begin with what is new."""
        held = {checkpoint.key: checkpoint for checkpoint in self._holdings.checkpoints}
        for key in self._shelves.keys() - held.keys():
            self._clear(self._shelves.pop(key))
        # What nobody has wanted yet comes behind what was wanted, in the order of the catalogue.
        fresh = [key for key in reversed(held) if key not in self._shelves]
        self._shelves = {key: _Shelf(held[key]) for key in fresh} | self._shelves
        self.refill()

    def close(self) -> None:
        """Make no more, and let go of what is there. Destroying it is left to the background."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for shelf in self._shelves.values():
            self._clear(shelf)

    def _neediest(self) -> _Shelf | None:
        """The most wanted checkpoint that lacks a sandbox and has room for one."""
        now = asyncio.get_running_loop().time()
        room, count = self._budget, self._most
        waiting: float | None = None
        for shelf in reversed(self._shelves.values()):
            cost = self._cost(shelf.checkpoint)
            allowed = min(self._per_checkpoint, count, room // cost if cost else count)
            count -= allowed
            room -= allowed * cost
            if len(shelf.ready) + shelf.starting < allowed:
                if shelf.resting_until <= now:
                    return shelf
                waiting = min(waiting or shelf.resting_until, shelf.resting_until)
            while len(shelf.ready) > allowed:  # others are wanted more
                self._starter.discard(shelf.ready.pop())
        if waiting is not None:
            self._wake_at(waiting)
        return None

    async def _make(self, shelf: _Shelf) -> None:
        key = shelf.checkpoint.key
        # Until its call sets its own.
        limits = Limits(memory=IDLE_MEMORY + self._cost(shelf.checkpoint), growing=True)
        try:
            live = await self._starter.start(shelf.checkpoint, limits, ahead=True)
        except NotStartedError as error:
            log.warning("no sandbox ahead", checkpoint=key, reason=str(error))
            shelf.resting_until = asyncio.get_running_loop().time() + shelf.pause
            shelf.pause = min(2 * shelf.pause, LONGEST_PAUSE_S)
            await self._holdings.failed(key, str(error))
        else:
            shelf.pause = FIRST_PAUSE_S
            self._holdings.worked(key)
            self._put(shelf, live)
        finally:
            shelf.starting -= 1
            self._making -= 1
        self.refill()

    def _put(self, shelf: _Shelf, live: LiveSandbox) -> None:
        if self._closed or self._shelves.get(shelf.checkpoint.key) is not shelf:
            self._starter.discard(live)
            return
        shelf.ready.append(live)

        def died(_: object) -> None:
            with contextlib.suppress(ValueError):  # it was claimed: its call finds out by itself
                shelf.ready.remove(live)
                log.warning("a sandbox made ahead has died", checkpoint=shelf.checkpoint.key)
                self._starter.discard(live)
                self.refill()

        live.connection.ended.add_done_callback(died)

    def _clear(self, shelf: _Shelf) -> None:
        while shelf.ready:
            self._starter.discard(shelf.ready.pop())

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self.refill)
