"""Builds one generation from a plan."""

import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from pathlib import Path

from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.captures import Captures, LocalCaptures, Outcome, Task
from readie_pipeline.capture.preflight import require_room
from readie_pipeline.capture.recording import Ground, Recorded, record
from readie_pipeline.capture.resuming import Resumed, resume
from readie_pipeline.capture.staging import Stage, staged
from readie_pipeline.errors import CaptureError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry
from readie_wire.manifest import CheckpointMeta

EMPTY = "checkpoint_0"
ROUNDS = 3  # restores of each checkpoint, whose median counts


# Goes through a sequence of names and may show how far it is.
Track = Callable[[Sequence[str], str], Generator[str, None, None]]


@dataclass(frozen=True, slots=True)
class Job:
    """What to build. ``metadata`` holds what is installed where the checkpoints will run.

    ``strict``: the first checkpoint that fails ends it, and no generation is written.
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
    captured: Mapping[str, CheckpointMeta]
    left_out: Mapping[str, str]


async def build(
    job: Job,
    capturer: Capturer,
    track: Track,
    tell: Callable[[str], None],
    captures: Captures | None = None,
) -> Report:
    """Capture everything in the plan, then put the generation in place at once.

    ``captures`` does it, by default the ``capturer`` itself, which times everything in any case. A
    run that ends early keeps what it has captured, for the next one to go on with; ``tell`` is told
    of that. A checkpoint that cannot be captured is
    left out with its reason. Raises `CaptureError` when none could be (or, with ``strict``, one
    could not), `OutputError` when ``out`` cannot be written.
    """
    entries = {f"checkpoint_{n}": entry for n, entry in enumerate(job.plan.entries, start=1)}
    if job.with_empty:
        entries = {EMPTY: PlanEntry(imports=())} | entries
    if not entries:
        raise CaptureError("the plan is empty; give --imports, or --with-empty")
    with staged(job.out) as stage:
        run = _Run(job, capturer, stage)
        try:
            await capturer.open()
            missing = await run.resume(entries, tell)
            await run.capture(missing, captures or LocalCaptures(capturer), track)
            run.require_any()
            rounds = [f"round {n}" for n in range(1, ROUNDS + 1)]
            for _ in track(rounds, "timing restores"):
                await run.time_round()
            run.require_any()
            timed = run.timed()
            recorded = record(
                stage.generation, job.plan, job.metadata, entries, timed, run.ground()
            )
        except BaseException:
            if kept := stage.kept():
                tell(
                    f"{', '.join(kept)}: kept in {stage.folder}; the same command goes on from there"
                )
            raise
        finally:
            await capturer.close()
    return Report(recorded, timed, run.left_out)


def _tell(tell: Callable[[str], None], resumed: Resumed) -> None:
    for checkpoint_id, reason in resumed.dropped.items():
        tell(f"{checkpoint_id} of an earlier run is not used: {reason}")
    if resumed.reused:
        tell(f"{', '.join(resumed.reused)}: captured by an earlier run, proven and used again")


class _Run:
    """What one build has captured, timed and given up so far."""

    def __init__(self, job: Job, capturer: Capturer, stage: Stage) -> None:
        self._job = job
        self._capturer = capturer
        self._stage = stage
        self._restores: defaultdict[str, list[float]] = defaultdict(list)
        self._colds: list[float] = []
        self.captured: dict[str, CheckpointMeta] = {}
        self.left_out: dict[str, str] = {}

    async def resume(
        self, entries: Mapping[str, PlanEntry], tell: Callable[[str], None]
    ) -> Mapping[str, Sequence[str]]:
        """Take what an earlier run has left; answers with the imports of what is missing.

        Raises `CaptureError`: there is no room for that.
        """
        resumed = await resume(self._stage, entries, self._capturer)
        _tell(tell, resumed)
        self.captured.update(resumed.reused)
        missing = {name: entry for name, entry in entries.items() if name not in resumed.reused}
        if self._capturer.stores:
            require_room(self._stage.folder, [entry.size_mb for entry in missing.values()])
        return {name: entry.imports for name, entry in missing.items()}

    async def capture(
        self, missing: Mapping[str, Sequence[str]], captures: Captures, track: Track
    ) -> None:
        """``missing`` maps ids to imports."""
        tasks = [
            Task(checkpoint_id, imports, self._stage.checkpoint(checkpoint_id))
            for checkpoint_id, imports in missing.items()
        ]
        with closing(track(list(missing), "capturing")) as steps:
            next(steps, None)
            async with aclosing(captures(tasks)) as outcomes:
                async for task, outcome in outcomes:
                    self._take(task, outcome)
                    next(steps, None)

    async def time_round(self) -> None:
        """Time a cold start and a restore of each, so that a busy moment hits all alike."""
        self._colds.append(await self._capturer.cold_seconds())
        for checkpoint_id in list(self.captured):
            try:
                seconds = await self._capturer.restore_seconds(
                    checkpoint_id, self._stage.checkpoint(checkpoint_id)
                )
            except CaptureError as error:
                self._leave_out(checkpoint_id, error)
            else:
                self._restores[checkpoint_id].append(seconds)

    def require_any(self) -> None:
        if not self.captured:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise CaptureError(f"no checkpoint could be captured: {reasons}")

    def timed(self) -> Mapping[str, CheckpointMeta]:
        """What was captured and comes back, with the median of its restores."""
        return {
            checkpoint_id: replace(
                meta, restore_s=round(statistics.median(self._restores[checkpoint_id]), 6)
            )
            for checkpoint_id, meta in self.captured.items()
        }

    def ground(self) -> Ground:
        return Ground(
            runtime=self._capturer.runtime,
            size_matters=self._capturer.size_matters,
            platform=self._capturer.platform(),
            cold_s=statistics.median(self._colds),
        )

    def _take(self, task: Task, outcome: Outcome) -> None:
        if isinstance(outcome, CaptureError):
            self._leave_out(task.checkpoint_id, outcome)
            return
        self.captured[task.checkpoint_id] = outcome
        if self._capturer.stores:
            self._stage.keep(outcome)

    def _leave_out(self, checkpoint_id: str, error: CaptureError) -> None:
        self.captured.pop(checkpoint_id, None)
        shutil.rmtree(self._stage.checkpoint(checkpoint_id), ignore_errors=True)
        if self._job.strict:
            raise CaptureError(f"{checkpoint_id}: {error}") from error
        self.left_out[checkpoint_id] = str(error)
