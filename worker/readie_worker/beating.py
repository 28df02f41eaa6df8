"""Tells the fleet that this worker is alive, from a thread of its own.

The event loop may be busy for seconds (a result of 1 GiB is decoded, a catalogue of 400 MB swapped
in): its worker is alive all the same, and must not be taken for dead. So the beat has its own
thread, its own event loop and its own connection; it only reads a record that the main loop keeps.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import structlog

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore
from readie_wire.records import WorkerRecord

LIVES = 5  # beats that may be missed before the record expires: lease 15 s at a beat of 3 s
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: the latter does the same
LEAVE_WITHIN_S = 10.0  # a server that does not answer by then is not told that the worker left
TICKS = 3  # to the supervisor for each beat to the fleet: a pipe costs nothing, and cannot be away


def silence(every: float) -> float:
    """Seconds without a tick after which a worker counts as stopped: ⅔ of its lease.

    So its sandboxes are gone before anybody else may run its calls again.
    """
    return LIVES * every * 2 / 3


log = structlog.stdlib.get_logger(__name__)


def clock() -> float:
    """Seconds that also pass while the machine sleeps, as they do for everybody else."""
    return time.clock_gettime(CLOCK)


class Beater:
    """Beats each ``every`` seconds until `close`, and at once when `nudge` says that news is worth it.

    ``open_store`` is called in the thread: a client belongs to the loop it was made in.
    ``describe`` is called in the thread as well, and must not touch what only the loop may.
    ``tick`` is called there a few times a beat, whether the fleet hears of it or not.
    `ended` resolves if the thread ends by itself, which is a reason to stop the worker.
    """

    def __init__(
        self,
        open_store: Callable[[], CallStore],
        describe: Callable[[], WorkerRecord],
        every: float,
        tick: Callable[[], None],
    ) -> None:
        self._open_store = open_store
        self._describe = describe
        self._every = every
        self._tick = tick
        self._owner = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._owner.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._stopping = False
        self._missed = False
        self._heard_at = clock()
        self._thread = threading.Thread(target=self._main, name="beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def unheard(self) -> float:
        """Seconds since a beat reached the fleet, which after a lease takes this worker for dead."""
        return clock() - self._heard_at

    def nudge(self) -> None:
        """Beat now: what can be restored here has changed."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread has ended, and its loop with it
                self._loop.call_soon_threadsafe(self._news.set)

    async def close(self) -> None:
        """Beat no more; forget the worker, so that nobody waits for it. Idempotent."""
        self._stopping = True
        self.nudge()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, LEAVE_WITHIN_S)

    def _main(self) -> None:
        try:
            asyncio.run(self._beat())
        except BaseException:
            log.exception("the beat has failed")
        finally:
            with contextlib.suppress(RuntimeError):  # given up by `close`, whose loop has ended too
                self._owner.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def _beat(self) -> None:
        self._loop = asyncio.get_running_loop()
        store = self._open_store()
        ticking = asyncio.create_task(self._keep_ticking())
        try:
            while not self._stopping:
                await self._once(store)
                try:
                    async with asyncio.timeout(self._every):
                        await self._news.wait()
                except TimeoutError:
                    continue
                self._news.clear()
            await self._leave(store)
        finally:
            ticking.cancel()
            await store.close()

    async def _keep_ticking(self) -> None:
        """Beside the beats, which wait for Redis when it is slow or away."""
        while True:
            self._tick()
            await asyncio.sleep(self._every / TICKS)

    async def _once(self, store: CallStore) -> None:
        began = clock()
        try:
            await store.beat(self._describe(), LIVES * self._every)
        except StoreUnavailableError as error:
            if not self._missed:
                log.warning("beats are missed", reason=str(error))
            self._missed = True
        else:
            self._missed, self._heard_at = False, began

    async def _leave(self, store: CallStore) -> None:
        try:
            await store.leave(self._describe().boot)
        except StoreUnavailableError as error:
            log.warning("could not sign off", reason=str(error))
