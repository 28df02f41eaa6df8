"""Builds one generation from a plan."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_pipeline.capture.capturer import Captured, Capturer
from readie_pipeline.capture.recording import Recorded, record
from readie_pipeline.capture.staging import CHECKPOINTS, staged
from readie_pipeline.errors import CaptureError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry

EMPTY = "checkpoint_0"

# Goes through a sequence of names and may show how far it is.
Track = Callable[[Sequence[str], str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Job:
    """What to build. ``strict``: the first checkpoint that fails ends it, and nothing is written."""

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
        await capturer.open()
        try:
            captured, left_out = await _capture_all(job, capturer, entries, draft, track)
            cold_s = await capturer.cold_seconds()
        finally:
            await capturer.close()
        done = {checkpoint_id: entries[checkpoint_id] for checkpoint_id in captured}
        recorded = record(draft, job.plan, job.metadata, done, captured, capturer, cold_s)
    return Report(recorded, captured, left_out)


async def _capture_all(
    job: Job, capturer: Capturer, entries: Mapping[str, PlanEntry], draft: Path, track: Track
) -> tuple[dict[str, Captured], dict[str, str]]:
    captured: dict[str, Captured] = {}
    left_out: dict[str, str] = {}
    for checkpoint_id in track(list(entries), "capturing"):
        folder = draft / CHECKPOINTS / checkpoint_id
        folder.mkdir()
        try:
            captured[checkpoint_id] = await capturer.capture(
                checkpoint_id, entries[checkpoint_id].imports, folder
            )
        except CaptureError as error:
            if job.strict:
                raise CaptureError(f"{checkpoint_id}: {error}") from error
            left_out[checkpoint_id] = str(error)
            shutil.rmtree(folder)
    if not captured:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise CaptureError(f"no checkpoint could be captured: {reasons}")
    return captured, left_out
