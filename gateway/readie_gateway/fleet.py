"""The live workers as this gateway last saw them, joined with the catalogues that price for them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from readie_gateway.bucket_view import BucketView
from readie_gateway.catalogues import Catalogues
from readie_gateway.loading import LoadedCatalogue
from readie_infra.store import CallStore
from readie_wire.manifest import StartupSeconds
from readie_wire.pricing import Prediction, PricedCatalogue, Quote, predict
from readie_wire.records import GenerationFacts, WorkerRecord

log = logging.getLogger(__name__)

REFRESH_S = 1.0
_REMEMBERED = 4_096  # distinct import lists; a fleet runs far fewer functions at a time


class PricedGeneration:
    """A generation that live workers hold and whose catalogue is here: calls can be priced for it."""

    def __init__(self, facts: GenerationFacts, catalogue: LoadedCatalogue, workers: int) -> None:
        self.generation = facts.generation
        self.facts = facts
        self.catalogue = catalogue
        self.workers = workers
        self.checkpoints = {
            checkpoint: replace(
                known,
                generation=facts.generation,
                import_environment=frozenset(facts.import_environment.get(checkpoint, ())),
            )
            for checkpoint, known in catalogue.facts.items()
            if checkpoint in facts.checkpoints
        }
        self.items_of = lru_cache(maxsize=_REMEMBERED)(self._items_of)

    @property
    def priced(self) -> PricedCatalogue:
        return self.catalogue.priced

    @property
    def startup(self) -> StartupSeconds:
        """What any start costs there."""
        facts = self.facts
        return StartupSeconds(
            facts.startup_cold_s,
            facts.startup_restore_s,
            facts.import_factor,
            facts.startup_per_mb_s,
        )

    def predict(self, quote: Quote) -> Prediction:
        """The time that the start which was quoted takes there."""
        return predict(quote, self.startup, self.facts.runtime)

    def _items_of(self, imports: tuple[str, ...]) -> tuple[str, ...]:
        """The items that these names stand for, without what those depend on."""
        nearest = self.priced.catalogue.graph.nearest
        return tuple(sorted({item for name in imports if (item := nearest(name)) is not None}))


@dataclass(frozen=True, slots=True)
class Fleet:
    """One look at the fleet. ``generations`` maps a flavor to what prices for it, the best first."""

    workers: Sequence[WorkerRecord] = ()
    generations: Mapping[str, Sequence[PricedGeneration]] | None = None

    def of_flavor(self, flavor: str) -> Sequence[WorkerRecord]:
        """The workers of a flavor that take calls."""
        return [one for one in self.workers if one.flavor == flavor and not one.draining]

    def priced(self, flavor: str) -> Sequence[PricedGeneration]:
        return (self.generations or {}).get(flavor, ())


class FleetWatch:
    """Keeps `now` up to date. While the store is away it stays what it was.

    ``bucket`` tells which catalogues workers are about to hold: large ones take seconds to read, so
    they are read before the swap.
    """

    def __init__(
        self, store: CallStore, catalogues: Catalogues, bucket: BucketView | None = None
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bucket = bucket
        self._known: dict[tuple[str, str, str], PricedGeneration] = {}
        self._priced_for: dict[str, str] = {}  # flavor → generation
        self.swaps: Counter[str] = Counter()  # by flavor, since the start; the first one is none
        self.now = Fleet()

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_S)

    async def refresh(self) -> None:
        """Look once. Raises `StoreUnavailableError`."""
        workers = await self._store.workers()
        held = {
            facts.generation: facts.catalogue_sha256
            for worker in workers
            for facts in worker.generations
        }
        coming = self._bucket.catalogues_after(held) if self._bucket else ()
        self._catalogues.held({*held.values(), *coming})
        self.now = Fleet(workers, self._join(workers))
        self._note_swaps()

    def _note_swaps(self) -> None:
        for flavor, (first, *_) in (self.now.generations or {}).items():
            before = self._priced_for.get(flavor)
            self._priced_for[flavor] = first.generation
            if before not in (None, first.generation):
                self.swaps[flavor] += 1
                log.info(
                    "calls of %s are priced for generation %s, no longer for %s",
                    *(flavor, first.generation, before),
                )

    def _join(self, workers: Sequence[WorkerRecord]) -> Mapping[str, Sequence[PricedGeneration]]:
        catalogues = {(one.flavor, one.sha256): one for one in reversed(self._catalogues.loaded)}
        holders: Counter[tuple[str, str]] = Counter()
        facts_of: dict[tuple[str, str], GenerationFacts] = {}
        for worker in workers:
            for facts in worker.generations:
                if not worker.draining and (worker.flavor, facts.catalogue_sha256) in catalogues:
                    holders[worker.flavor, facts.generation] += 1
                    facts_of[worker.flavor, facts.generation] = facts
        known: dict[tuple[str, str, str], PricedGeneration] = {}
        joined: dict[str, list[PricedGeneration]] = {}
        for (flavor, generation), facts in facts_of.items():
            catalogue = catalogues[flavor, facts.catalogue_sha256]
            key = (flavor, generation, catalogue.sha256)
            priced = self._known.get(key)
            count = holders[flavor, generation]
            if priced is None or priced.facts != facts or priced.catalogue is not catalogue:
                priced = PricedGeneration(facts, catalogue, count)
            priced.workers = count
            known[key] = priced
            joined.setdefault(flavor, []).append(priced)
        self._known = known
        for generations in joined.values():
            # During a swap most workers still hold the old one; generation ids sort by time.
            generations.sort(key=lambda one: (one.workers, one.generation), reverse=True)
        return joined
