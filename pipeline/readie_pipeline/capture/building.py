"""Builds one generation from a plan."""

import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from readie_pipeline.capture.capturer import Captured, Capturer
from readie_pipeline.capture.recording import Ground, Recorded, record
from readie_pipeline.capture.staging import CHECKPOINTS, staged
from readie_pipeline.errors import CaptureError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry

EMPTY = "checkpoint_0"
ROUNDS = 3  # restores of each checkpoint, whose median counts

# Goes through a sequence of names and may show how far it is.
Track = Callable[[Sequence[str], str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Job:
    """What to build. ``metadata`` holds what is installed where the checkpoints will run.

    ``strict``: the first checkpoint that fails ends it, and nothing is written.
    """

    plan: Plan
    metadata: Metadata
    out: Path
    with_empty: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What came out. ``left_out`` maps the ids of planned checkpoints to why they are missing."""

    recorded: Recorded
    captured: Mapping[str, Captured]
    left_out: Mapping[str, str]


async def build(job: Job, capturer: Capturer, track: Track) -> Report:
    """Capture everything in the plan, then put the generation in place at once.

    A checkpoint that cannot be captured is left out with its reason. Raises `CaptureError` when
    none could be (or, with ``strict``, one could not), `OutputError` when ``out`` cannot be written.
    """
    entries = {f"checkpoint_{n}": entry for n, entry in enumerate(job.plan.entries, start=1)}
    if job.with_empty:
        entries = {EMPTY: PlanEntry(imports=())} | entries
    if not entries:
        raise CaptureError("the plan is empty; give --imports, or --with-empty")
    with staged(job.out) as draft:
        run = _Run(job, capturer, draft)
        await capturer.open()
        try:
            for checkpoint_id in track(list(entries), "capturing"):
                await run.capture(checkpoint_id, entries[checkpoint_id].imports)
            run.require_any()
            for _ in track([f"round {n}" for n in range(1, ROUNDS + 1)], "timing restores"):
                await run.time_round()
            run.require_any()
            recorded = record(draft, job.plan, job.metadata, entries, run.timed(), run.ground())
        finally:
            await capturer.close()
    return Report(recorded, run.timed(), run.left_out)


class _Run:
    """What one build has captured, timed and given up so far."""

    def __init__(self, job: Job, capturer: Capturer, draft: Path) -> None:
        self._job = job
        self._capturer = capturer
        self._draft = draft
        self._captured: dict[str, Captured] = {}
        self._restores: defaultdict[str, list[float]] = defaultdict(list)
        self._colds: list[float] = []
        self.left_out: dict[str, str] = {}

    async def capture(self, checkpoint_id: str, imports: Sequence[str]) -> None:
        folder = self._folder(checkpoint_id)
        folder.mkdir()
        try:
            self._captured[checkpoint_id] = await self._capturer.capture(
                checkpoint_id, imports, folder
            )
        except CaptureError as error:
            self._leave_out(checkpoint_id, error)

    async def time_round(self) -> None:
        """Time a cold start and a restore of each, so that a busy moment hits all alike."""
        self._colds.append(await self._capturer.cold_seconds())
        for checkpoint_id in list(self._captured):
            try:
                seconds = await self._capturer.restore_seconds(
                    checkpoint_id, self._folder(checkpoint_id)
                )
            except CaptureError as error:
                self._leave_out(checkpoint_id, error)
            else:
                self._restores[checkpoint_id].append(seconds)

    def require_any(self) -> None:
        if not self._captured:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise CaptureError(f"no checkpoint could be captured: {reasons}")

    def timed(self) -> Mapping[str, Captured]:
        """What was captured and comes back, with the median of its restores."""
        return {
            checkpoint_id: replace(
                captured, restore_s=round(statistics.median(self._restores[checkpoint_id]), 6)
            )
            for checkpoint_id, captured in self._captured.items()
        }

    def ground(self) -> Ground:
        return Ground(
            runtime=self._capturer.runtime,
            size_matters=self._capturer.size_matters,
            platform=self._capturer.platform(),
            cold_s=statistics.median(self._colds),
        )

    def _leave_out(self, checkpoint_id: str, error: CaptureError) -> None:
        if self._job.strict:
            raise CaptureError(f"{checkpoint_id}: {error}") from error
        self.left_out[checkpoint_id] = str(error)
        self._captured.pop(checkpoint_id, None)
        shutil.rmtree(self._folder(checkpoint_id))

    def _folder(self, checkpoint_id: str) -> Path:
        return self._draft / CHECKPOINTS / checkpoint_id
