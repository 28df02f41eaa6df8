"""Many checkpoints to capture: by this process, or by whoever else can (`readie_pipeline.distributing`)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.errors import CaptureError
from readie_wire.manifest import CheckpointMeta


@dataclass(frozen=True, slots=True)
class Task:
    """One checkpoint to be. ``folder`` is made by who brings the images."""

    checkpoint_id: str
    imports: Sequence[str]
    folder: Path


# The record of what is in the task's folder now, or why nothing is.
Outcome = CheckpointMeta | CaptureError


class Captures(Protocol):
    """Captures many, in any order. Close the generator to end it early."""

    def __call__(self, tasks: Sequence[Task]) -> AsyncGenerator[tuple[Task, Outcome], None]: ...


@dataclass(frozen=True, slots=True)
class LocalCaptures:
    """One after the other, with a capturer that is open."""

    capturer: Capturer

    async def __call__(self, tasks: Sequence[Task]) -> AsyncGenerator[tuple[Task, Outcome], None]:
        for task in tasks:
            outcome: Outcome
            task.folder.mkdir()
            try:
                outcome = await self.capturer.capture(task.checkpoint_id, task.imports, task.folder)
            except CaptureError as error:
                outcome = error
            yield task, outcome
