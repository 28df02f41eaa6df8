"""Takes calls while there is room for them, and obeys the orders about those it has."""

import asyncio
import contextlib

import structlog

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore, Cursor, Offer, Order
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord
from readie_worker.capacity import Capacity, Grant
from readie_worker.options import memory_of
from readie_worker.persisting import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered
from readie_worker.pool import Pool
from readie_worker.runner import Runner
from readie_worker.sessions import HeldSession, Sessions
from readie_worker.starting import LiveSandbox

BLOCK_S = 3.0  # then the queue is looked at anyway: a bell can be lost with the server's data
# A gpu worker also takes cpu calls that their own workers leave; nobody rings it for those.
SPILLS = {"gpu": "cpu"}
SPILL_BLOCK_S = 0.5
BELLS_COUNTED = 8  # the store keeps no more of them: from here on there may have been any number
ALL = 1 << 30  # takes owed when it is not known how many calls there are

log = structlog.stdlib.get_logger(__name__)


class Consumer:
    """The take loop of one worker.

    Takes are made one at a time, so that a sandbox that is ready is promised to one call only.
    Each bell is a take owed; one that finds no room is made good when a call ends. So a worker that
    serves one call after another asks once for each, and none is left lying.
    """

    def __init__(
        self,
        store: CallStore,
        runner: Runner,
        pool: Pool,
        capacity: Capacity,
        sessions: Sessions,
        *,
        boot: str,
        flavor: str,
        exposed_ok: bool,
        session_idle: float,
    ) -> None:
        self._store = store
        self._runner = runner
        self._pool = pool
        self._capacity = capacity
        self._boot = boot
        self._flavor = flavor
        self._exposed_ok = exposed_ok
        self._sessions = sessions
        self._session_idle = session_idle
        self._turns: dict[str, None] = {}  # sessions whose next call waits for a slot, in order
        self._block_s = SPILL_BLOCK_S if flavor in SPILLS else BLOCK_S
        self._taking = asyncio.Lock()
        self._runs: set[asyncio.Task[None]] = set()
        self._owed = ALL
        self._may_be_unfit = False  # a queued call may have asked for more memory than was free
        self.draining = False

    async def run(self) -> None:
        """Until cancelled: take, then wait for the bell or an order. Outages are waited out."""
        cursor, pause = Cursor(), FIRST_PAUSE_S
        while True:
            try:
                await self.take_owed()
                await asyncio.sleep(0)  # a call that was taken goes to its sandbox first
                wakeup = await self._store.orders_or_bell(
                    self._boot, self._flavor, cursor, self._block_s
                )
            except StoreUnavailableError as error:
                if pause == FIRST_PAUSE_S:
                    log.warning("no calls for now", reason=str(error))
                self._owed = ALL
                await asyncio.sleep(jittered(pause))
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            if pause != FIRST_PAUSE_S:
                log.info("calls again")
            cursor, pause = wakeup.cursor, FIRST_PAUSE_S
            quiet = not wakeup.orders and not wakeup.bells
            self._owed += ALL if quiet or wakeup.bells >= BELLS_COUNTED else wakeup.bells
            for order in wakeup.orders:
                self._obey(order)

    async def take_owed(self) -> None:
        """Take what the bells announced, while there is room. Raises `StoreUnavailableError`."""
        async with self._taking:
            while not self.draining and self._capacity.free_slots > 0:
                if self._turns:
                    await self._take_turn()
                elif not self._owed or not await self._take():
                    return

    async def _take_turn(self) -> None:
        """The next call of a session whose turn it is."""
        session = next(iter(self._turns))
        ready = self._sessions.ready(session)
        record = await self._store.take_session(self._boot, session, ready=ready)
        self._turns.pop(session, None)
        if record is not None:
            if ready and not self._sessions.ready(session):
                self._sessions.lose(session, memory_of(record))  # it died meanwhile
            self._begin(record)

    async def _take(self) -> bool:
        owed, used = self._owed, self._capacity.used_slots
        record = await self._store.take(self._offer())
        if record is None:
            self._owed -= owed  # but not what rang in the meantime
            self._may_be_unfit = used > 0
            return False
        self._owed -= 1
        self._begin(record)
        return True

    async def drain(self, grace: float) -> None:
        """Take no more; wait at most ``grace`` seconds for the calls that run, then end them."""
        self.draining = True
        async with self._taking:  # a take that is under way may still bring a call
            pass
        if self._runs:
            await asyncio.wait(self._runs, timeout=grace)
        if self._runs:
            self._runner.stop_all("it was told to stop")
            await asyncio.gather(*self._runs, return_exceptions=True)

    def _offer(self) -> Offer:
        return Offer(
            worker=self._boot,
            flavor=self._flavor,
            slots=self._capacity.free_slots,
            memory_free=self._capacity.free_memory,
            ready=self._pool.ready_keys,
            exposed_ok=self._exposed_ok,
            draining=self.draining,
            session_idle_s=self._session_idle,
            memory=self._capacity.memory,
            spills_from=SPILLS.get(self._flavor, ""),
        )

    def _begin(self, record: CallRecord) -> None:
        """Nothing is awaited between the take's answer and the claim: the promise holds."""
        key, memory = record.choice.key, memory_of(record)
        session = self._sessions.begin(record.session, memory) if record.session else None
        if session is not None and session.live is not None:
            claimed: LiveSandbox | None = session.live
        else:
            claimed = self._pool.claim(key) if key and record.state is State.RUNNING else None
        if session is not None:
            grant = session.grant
            self._capacity.occupy()
        else:
            grant = self._capacity.hold(memory)
        run = asyncio.create_task(self._serve(record, claimed, grant, session), name=record.call_id)
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    async def _serve(
        self,
        record: CallRecord,
        claimed: LiveSandbox | None,
        grant: Grant,
        session: HeldSession | None,
    ) -> None:
        try:
            await self._runner.run(record, claimed, grant, session)
        finally:
            if session is not None:
                self._capacity.vacate()
                self._sessions.rest(session)
            else:
                self._capacity.release(grant)
        if self._may_be_unfit:
            self._may_be_unfit, self._owed = False, ALL
        with contextlib.suppress(StoreUnavailableError):  # the loop waits an outage out
            await self.take_owed()
        await asyncio.sleep(0)  # a call that was taken asks for its sandbox first
        self._pool.refill()

    def _obey(self, order: Order) -> None:
        if order.type == "cancel":
            self._runner.cancel(order.call_id, order.reason)
        elif order.type == "session":
            self._turns[order.session] = None
        elif order.type == "close":
            self._turns.pop(order.session, None)
            self._sessions.close(order.session)
        else:
            log.warning("unknown order", type=order.type)
