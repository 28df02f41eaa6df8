"""What this worker can restore right now, kept in step with the generation on its disk."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from readie_wire.holdings import Refusal, RefusalKind
from readie_wire.records import GenerationFacts
from readie_worker.errors import GenerationError
from readie_worker.generations import (
    Generation,
    Machine,
    Signature,
    describe_refusals,
    find_manifest,
    read_generation,
    signature,
)
from readie_worker.sandbox.api import Checkpoint, Runtime
from readie_worker.sandbox.errors import SandboxError

QUARANTINE_AFTER = 3  # failures in a row: once may be bad luck, three times is a bad checkpoint
POLL_S = 1.0  # how often the manifest is looked at
ADOPT_TOGETHER = 2  # checkpoints made restorable at a time: each may import packages for seconds

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    generation: Generation
    adopted: dict[str, Checkpoint] = field(default_factory=dict)  # by checkpoint id
    refused: dict[str, Refusal] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)


class Holdings:
    """The current generation, and which of its checkpoints the runtime has adopted.

    ``resident`` tells how many bytes an adopted checkpoint keeps in memory (a zygote does, an image
    on disk does not); checkpoints past ``resident_budget`` are refused with that reason. A
    checkpoint that fails `QUARANTINE_AFTER` times in a row is given up until the next generation.
    ``may_be_empty``: a folder without a generation is no fault, one may come.
    ``on_change`` is called whenever the set of restorable checkpoints has changed.
    """

    def __init__(
        self,
        runtime: Runtime,
        machine: Machine,
        root: Path | None,
        *,
        resident: Callable[[float], int],
        resident_budget: int,
        may_be_empty: bool = False,
    ) -> None:
        self._runtime = runtime
        self._machine = machine
        self._root = root
        self._resident = resident
        self._resident_budget = resident_budget
        self._may_be_empty = may_be_empty
        self._held: _Held | None = None
        self._fresh: _Held | None = None  # being adopted, while the old one still serves
        self._turned_down: _Held | None = None  # came last, and nothing of it can be restored
        self._seen: Signature | None = None
        self._arrival = asyncio.Event()
        self.swaps = 0  # since the start; the first generation is not one
        self.error = ""  # why the generation on disk is not served; for the worker's record
        self.on_change: Callable[[], None] = lambda: None

    @property
    def generation(self) -> Generation | None:
        return self._held.generation if self._held else None

    @property
    def in_use(self) -> frozenset[str]:
        """The generations whose files are needed here, by id."""
        return frozenset(held.generation.id for held in (self._held, self._fresh) if held)

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """Those that can be restored, in the order of the catalogue."""
        return tuple(self._held.adopted.values()) if self._held else ()

    @property
    def by_value(self) -> Sequence[Checkpoint]:
        """The same, the most valuable first: what each is expected to save, times starts seen here.

        Nobody has started any at first, so then it is the expectation alone.
        """
        held = self._held
        if held is None:
            return ()
        saved = held.generation.saved

        def value(name: str) -> tuple[float, str]:
            return -saved.get(name, 0.0) * (1 + held.starts[name]), name

        return [held.adopted[name] for name in sorted(held.adopted, key=value)]

    @property
    def turned_down(self) -> Generation | None:
        """The one that came last, where nothing of it can be restored and another one serves on."""
        return self._turned_down.generation if self._turned_down else None

    def refused_of(self, generation: str) -> Mapping[str, Refusal]:
        """What cannot be restored of a generation that is served or was turned down."""
        known = (self._held, self._turned_down)
        found = (one for one in known if one and one.generation.id == generation)
        return next((one.refused.copy() for one in found), {})

    @property
    def refused(self) -> Mapping[str, Refusal]:
        """Those of the current generation that cannot be restored, by checkpoint id."""
        return self._held.refused.copy() if self._held else {}

    @property
    def notes(self) -> Sequence[str]:
        return describe_refusals(self._held.refused.copy()) if self._held else ()

    def get(self, key: str) -> Checkpoint | None:
        generation, _, checkpoint = key.rpartition("/")
        if self._held is None or self._held.generation.id != generation:
            return None
        return self._held.adopted.get(checkpoint)

    def why_not(self, key: str) -> str:
        """Why ``key`` cannot be restored here, as half a sentence."""
        generation, _, checkpoint = key.rpartition("/")
        if self._held is None:
            return self.error or "this worker has no generation"
        if self._held.generation.id != generation:
            return f"this worker holds generation {self._held.generation.id}"
        return str(self._held.refused.get(checkpoint, "the generation does not list it"))

    def advertised(self) -> Sequence[GenerationFacts]:
        """For the worker's record; the gateway prices these and no others."""
        if self._held is None:
            return ()
        manifest = self._held.generation.manifest
        adopted = tuple(self._held.adopted)
        return (
            GenerationFacts(
                generation=manifest.generation,
                catalogue_sha256=manifest.catalogue_sha256,
                checkpoints=adopted,
                python=manifest.python,
                runtime=manifest.runtime,
                startup_cold_s=manifest.startup_s.cold,
                startup_restore_s=manifest.startup_s.restore,
                startup_per_mb_s=manifest.startup_s.per_mb,
                import_factor=manifest.startup_s.import_factor,
                import_environment={
                    entry.id: entry.import_environment
                    for entry in manifest.checkpoints
                    if entry.id in adopted
                },
            ),
        )

    async def watch(self) -> None:
        """Serve what is on disk, for ever: load at the start, load again when it was replaced."""
        if self._root is None or self._is_empty(self._root):
            self._say_loaded()
        while True:
            self._arrival.clear()
            await self.refresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._arrival.wait()

    def look(self) -> None:
        """Something has arrived on the disk: do not wait for the next turn of `watch`."""
        self._arrival.set()

    async def refresh(self) -> None:
        """Load the generation on disk when it is not the one that was seen last."""
        if self._root is None or self._is_empty(self._root):
            return
        seen = signature(self._root, self._machine.flavor)
        if seen == self._seen and (seen is not None or self.error):
            return
        self._seen = seen
        try:
            if seen is None:
                raise GenerationError(
                    f"{self._root} holds neither manifest.json nor {self._machine.flavor}/manifest.json"
                )
            generation = await asyncio.to_thread(read_generation, seen[0].parent, self._machine)
        except GenerationError as error:
            self.error = str(error)
            kept = self.generation.id if self.generation else None
            log.warning("generation not used", reason=self.error, kept=kept)
            self._say_loaded()
            return
        self.error = ""
        if self._held is not None and self._held.generation.id == generation.id:
            await self._extend(self._held, generation)
        else:
            await self._swap(generation)
        self._say_loaded()

    async def failed(self, key: str, reason: str) -> None:
        """A restore of ``key`` failed; too many in a row put it in quarantine."""
        checkpoint = self.get(key)
        if self._held is None or checkpoint is None:
            return
        name = key.rpartition("/")[2]
        count = self._held.failures.get(name, 0) + 1
        self._held.failures[name] = count
        if count < QUARANTINE_AFTER:
            return
        del self._held.adopted[name]
        self._held.refused[name] = Refusal(
            RefusalKind.FAILING, f"in quarantine after {count} failures in a row: {reason}"
        )
        log.warning("checkpoint in quarantine", checkpoint=key, failures=count, reason=reason)
        self.on_change()
        await self._runtime.discard(key)

    def worked(self, key: str) -> None:
        """A restore of ``key`` reached its executor."""
        generation, _, name = key.rpartition("/")
        if self._held is not None and self._held.generation.id == generation:
            self._held.failures.pop(name, None)
            self._held.starts[name] += 1

    async def _swap(self, generation: Generation) -> None:
        """Adopt what the new generation has while the old one still serves, then let that go.

        Without an old one, each checkpoint serves as soon as it is adopted.
        """
        began = time.monotonic()
        fresh = _Held(generation, refused=dict(generation.refused))
        old, self._held = self._held, self._held or fresh
        if old is not None:
            fresh.starts = _carried_over(old, generation)
        self._fresh = fresh
        await self._adopt(fresh, generation.usable.keys())
        self._fresh = None
        if old is not None and not fresh.adopted and old.adopted:
            self._held, self._turned_down = old, fresh
            self.error = f"nothing of generation {generation.id} can be used here: " + "; ".join(
                describe_refusals(fresh.refused)
            )
            log.warning("generation not used", reason=self.error, kept=old.generation.id)
            return
        if old is not None:
            self.swaps += 1
            log.info(
                "generation swapped",
                before=old.generation.id,
                after=generation.id,
                checkpoints=len(fresh.adopted),
                refused=len(fresh.refused),
                seconds=round(time.monotonic() - began, 3),
            )
        self._held, self._turned_down = fresh, None
        self.on_change()
        await asyncio.sleep(0)  # a start that has chosen what is let go here asks for it first
        for checkpoint in old.adopted.values() if old else ():
            await self._runtime.discard(checkpoint.key)

    async def _extend(self, held: _Held, generation: Generation) -> None:
        """Adopt what has arrived since the generation was read last."""
        arrived = generation.usable.keys() & held.generation.refused.keys()
        held.generation = generation
        for name in arrived:
            del held.refused[name]
        await self._adopt(held, arrived)

    async def _adopt(self, held: _Held, names: Collection[str]) -> None:
        """Make these checkpoints restorable, as far as the memory goes."""
        budget = self._resident_budget
        limit = asyncio.Semaphore(ADOPT_TOGETHER)

        async def adopt(name: str, checkpoint: Checkpoint) -> None:
            async with limit:
                try:
                    await self._runtime.adopt(checkpoint)
                except SandboxError as error:
                    held.refused[name] = Refusal(RefusalKind.MACHINE, str(error))
                    log.warning("checkpoint refused", checkpoint=checkpoint.key, reason=str(error))
                    return
            held.adopted[name] = checkpoint
            if self._held is held:
                self.on_change()

        async with asyncio.TaskGroup() as adoptions:
            for name, checkpoint in held.generation.usable.items():
                budget -= self._resident(_size_mb(held.generation, name))
                if name not in names:
                    continue
                if budget < 0:
                    held.refused[name] = Refusal(
                        RefusalKind.MEMORY, "no memory is left to keep it ready on this worker"
                    )
                    continue
                adoptions.create_task(adopt(name, checkpoint))

    def _is_empty(self, root: Path) -> bool:
        return self._may_be_empty and find_manifest(root, self._machine.flavor) is None

    def _say_loaded(self) -> None:
        log.info(
            "artifacts loaded",
            flavor=self._machine.flavor,
            generation=self.generation.id if self.generation else None,
            checkpoints=len(self.checkpoints),
            refused=len(self._held.refused) if self._held else 0,
        )


def _carried_over(old: _Held, generation: Generation) -> Counter[str]:
    """Starts seen of what was captured anew: the same imports, under whichever id."""
    seen = {
        frozenset(entry.imports): old.starts[entry.id]
        for entry in old.generation.manifest.checkpoints
    }
    return Counter(
        {
            entry.id: seen.get(frozenset(entry.imports), 0)
            for entry in generation.manifest.checkpoints
        }
    )


def _size_mb(generation: Generation, checkpoint: str) -> float:
    entry = generation.manifest.checkpoint(checkpoint)
    return entry.size_mb if entry else 0.0
