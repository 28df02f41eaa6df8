"""A worker, composed from its parts, and the order in which they end."""

import asyncio
import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from readie_infra.blobs import BlobStore
from readie_infra.nudges import Nudges
from readie_infra.sealing import Seal
from readie_infra.store import CallStore
from readie_wire.records import WorkerRecord
from readie_wire.versions import PROTOCOL_VERSION
from readie_worker.background import Background
from readie_worker.beating import TICKS, Beater, silence
from readie_worker.capacity import Capacity
from readie_worker.consumer import Consumer
from readie_worker.generations import Machine
from readie_worker.growing import MemoryWatch
from readie_worker.holdings import Holdings
from readie_worker.pool import Pool
from readie_worker.prefetching import Prefetcher
from readie_worker.renewing import renew_holds
from readie_worker.runner import Runner
from readie_worker.sandbox.api import Network, Runtime
from readie_worker.sessions import Sessions
from readie_worker.sizing import PREFETCH_SHARE, MemoryShares, idle_bytes, resident_bytes
from readie_worker.starting import Starter
from readie_worker.stock import tell_holding
from readie_worker.syncing import BucketSync, Following

SPARES_AT_MOST = 32  # sandboxes ready ahead, of all checkpoints together
DESTROY_GRACE_S = 15.0  # for what is being destroyed in the background at the end

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is, in numbers and names. Memory in bytes, times in seconds.

    Its generations come from the folder ``artifacts``, or from the bucket it is ``following``. With
    ``generations_later`` that folder may be empty when the worker starts. Without a
    ``prefetch_budget`` a part of the memory is used to read ahead.
    """

    boot: str
    flavor: str
    slots: int
    memory_total: int
    network: Network
    artifacts: Path | None = None
    generations_later: bool = False
    following: Following | None = None
    prefetch_budget: int | None = None
    strict_compat: bool = True
    allow_unsandboxed: bool = False
    spares: int = 2
    beat: float = 3.0
    start_timeout: float = 25.0
    drain_grace: float = 30.0
    outcome_patience: float = 120.0
    session_idle: float = 300.0
    result_limit: int = 1 << 30
    gpu_total: int = 0
    version: str = ""
    distributions: Mapping[str, str] | None = None
    notes: Sequence[str] = ()


class Worker:
    """One worker on an open runtime, which `run` closes.

    ``open_store`` makes a store for the thread that calls it; `run` closes those as well. ``tick``
    shows a sign of life; it is called from the beat's thread.
    """

    def __init__(
        self,
        plan: Plan,
        runtime: Runtime,
        open_store: Callable[[], CallStore],
        blobs: BlobStore | None,
        tick: Callable[[], None] = lambda: None,
        seal: Seal | None = None,
    ) -> None:
        self._plan, self._runtime = plan, runtime
        self._open_store, self._tick = open_store, tick
        shares = MemoryShares.of(plan.memory_total)
        self._capacity = Capacity(plan.slots, shares.calls)
        self._background = Background()
        self._sync = _sync(plan, runtime)
        self._holdings = _holdings(plan, runtime, self._sync, shares.resident)
        self._prefetcher = _prefetcher(plan, self._holdings)
        starter = _starter(plan, runtime, self._background)
        self._pool = Pool(
            starter,
            self._holdings,
            self._background,
            per_checkpoint=plan.spares,
            most=SPARES_AT_MOST,
            cost=lambda checkpoint: idle_bytes(runtime.name, checkpoint.meta.get("size_mb")),
            budget=shares.pool,
            together=plan.slots,
        )
        self._store = open_store()
        self._runner = Runner(
            store=self._store,
            blobs=blobs,
            starter=starter,
            pool=self._pool,
            holdings=self._holdings,
            background=self._background,
            runtime=runtime.name,
            patience=plan.outcome_patience,
            seal=seal,
        )
        self._memory = MemoryWatch(lambda: self._runner.calls, self._runner.busy, self._capacity)
        self._sessions = Sessions(
            self._store,
            starter,
            self._background,
            self._capacity,
            boot=plan.boot,
            patience=plan.outcome_patience,
        )
        self._consumer = Consumer(
            self._store,
            self._runner,
            self._pool,
            self._capacity,
            self._sessions,
            boot=plan.boot,
            flavor=plan.flavor,
            exposed_ok=runtime.isolation != "none" or plan.allow_unsandboxed,
            session_idle=plan.session_idle,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises whatever ended one of its parts.

        The order of the end: (1) take no more calls; (2) let those that run end, then end them,
        while beats and orders go on, for their callers are told through the store; (3) stop
        watching generations, let the pool and the sessions' sandboxes go; (4) wait for sandboxes
        being destroyed; (5) close the runtime, which ends whatever is left; (6) sign off, last, so
        that nobody takes this worker for dead while it still holds calls; (7) close the store.
        """
        beater = Beater(self._open_store, self.describe, self._plan.beat, self._tick)
        self._holdings.on_change = lambda: self._follow(beater)
        beater.start()
        try:
            await self._serve(stop, beater)
        finally:
            self._pool.close()
            self._sessions.close_all()
            await self._background.close(DESTROY_GRACE_S)
            await self._runtime.close()
            await beater.close()
            await self._store.close()

    def describe(self) -> WorkerRecord:
        """The worker as it is now; called from the beat's thread, so it copies what it reads."""
        plan, problem = self._plan, self._holdings.error
        return WorkerRecord(
            boot=plan.boot,
            flavor=plan.flavor,
            runtime=self._runtime.name,
            isolation=self._runtime.isolation,
            python=platform.python_version(),
            protocol=PROTOCOL_VERSION,
            slots=self._capacity.slots,
            free_slots=self._capacity.free_slots,
            memory_total=self._capacity.memory,
            memory_free=self._capacity.free_memory,
            version=plan.version,
            host=socket.gethostname(),
            pid=os.getpid(),
            generations=self._holdings.advertised(),
            pool=self._pool.counts,
            distributions=plan.distributions or {},
            gpu_total=plan.gpu_total,
            draining=self._consumer.draining,
            notes=[
                *(*plan.notes, *self._runtime.notes, *self._holdings.notes),
                *(self._sync.notes if self._sync else ()),
                *([problem] if problem else ()),  # calls start cold all the same
            ],
            holding=tell_holding(self._holdings, self._sync, self._prefetcher.cached),
        )

    async def _serve(self, stop: asyncio.Event, beater: Beater) -> None:
        log.info(
            "worker is up",
            worker=self._plan.boot,
            runtime=self._runtime.name,
            slots=self._capacity.slots,
            memory=self._capacity.memory,
        )
        parts: set[asyncio.Task[Any]] = {
            asyncio.create_task(stop.wait(), name="waiting for the end"),
            asyncio.create_task(self._consumer.run(), name="taking calls"),
            asyncio.create_task(self._watch_generations(), name="watching generations"),
            asyncio.create_task(self._prefetcher.run(), name="reading checkpoints ahead"),
            asyncio.create_task(self._watch_lease(beater), name="watching the lease"),
            asyncio.create_task(self._renew_holds(), name="renewing what is held"),
            asyncio.create_task(self._memory.run(), name="watching memory"),
        }
        try:
            # A part that fails ends the worker: half a worker is worse than none.
            done, _ = await asyncio.wait(
                {*parts, beater.ended}, return_when=asyncio.FIRST_COMPLETED
            )
            for ended in done:
                ended.result()
            log.info("worker drains", running=self._capacity.used_slots)
            beater.nudge()
            await self._consumer.drain(self._plan.drain_grace)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _watch_generations(self) -> None:
        """Serve what is on the disk, and fetch what a bucket has for it; for ever."""
        if self._sync is None:
            await self._holdings.watch()
            return
        await self._sync.open()
        loop = asyncio.get_running_loop()
        self._sync.on_change = partial(loop.call_soon_threadsafe, self._holdings.look)
        nudges = Nudges(self._store, self._plan.boot)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._holdings.watch())
            both.create_task(self._sync.run(lambda: self._holdings.in_use, nudges.pause))

    async def _renew_holds(self) -> None:
        plan = self._plan
        await renew_holds(
            self._store, self._runner, self._sessions, boot=plan.boot, every=plan.beat
        )

    async def _watch_lease(self, beater: Beater) -> None:
        """A worker that is not heard is given up after a lease, and its repeatable calls run anew.

        So it ends them before that. Others go on: their outcome may still be wanted.
        """
        limit = silence(self._plan.beat)
        while True:
            await asyncio.sleep(self._plan.beat / TICKS)
            if (unheard := beater.unheard) > limit:
                self._runner.stop_repeatable(f"it was not heard for {unheard:.0f} s")

    def _follow(self, beater: Beater) -> None:
        self._pool.follow_holdings()
        self._prefetcher.look()
        beater.nudge()


def _machine(plan: Plan, runtime: Runtime) -> Machine:
    return Machine(plan.flavor, runtime.name, platform.python_version(), plan.strict_compat)


def _sync(plan: Plan, runtime: Runtime) -> BucketSync | None:
    return BucketSync(plan.following, _machine(plan, runtime)) if plan.following else None


def _holdings(plan: Plan, runtime: Runtime, sync: BucketSync | None, budget: int) -> Holdings:
    """``budget``: bytes that checkpoints kept ready may take."""
    return Holdings(
        runtime,
        _machine(plan, runtime),
        sync.root if sync else plan.artifacts,
        resident=lambda size_mb: resident_bytes(runtime.name, size_mb),
        resident_budget=budget,
        may_be_empty=plan.generations_later,
    )


def _prefetcher(plan: Plan, holdings: Holdings) -> Prefetcher:
    budget = plan.prefetch_budget
    if budget is None:
        budget = int(plan.memory_total * PREFETCH_SHARE)
    return Prefetcher(lambda: holdings.by_value, budget)


def _starter(plan: Plan, runtime: Runtime, background: Background) -> Starter:
    return Starter(
        runtime,
        background,
        boot=plan.boot,
        network=plan.network,
        start_timeout=plan.start_timeout,
        result_limit=plan.result_limit,
    )
