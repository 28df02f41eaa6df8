"""What a run that was killed or failed has captured: proven again and used, or dropped with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.staging import Stage
from readie_pipeline.errors import CaptureError
from readie_pipeline.plan.plan import PlanEntry
from readie_wire.manifest import CheckpointMeta


@dataclass(slots=True)
class Resumed:
    """``dropped`` maps the ids of what is not used to why."""

    reused: dict[str, CheckpointMeta] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)


async def resume(stage: Stage, entries: Mapping[str, PlanEntry], capturer: Capturer) -> Resumed:
    """Go through what is in the stage. Afterwards it holds what is reused, and nothing else."""
    resumed = Resumed()
    for checkpoint_id in stage.found():
        try:
            meta = stage.read(checkpoint_id)
            _check_planned(meta, checkpoint_id, entries)
            await capturer.prove(meta, stage.checkpoint(checkpoint_id))
        except CaptureError as error:
            resumed.dropped[checkpoint_id] = str(error)
            stage.drop(checkpoint_id)
        else:
            resumed.reused[checkpoint_id] = meta
    return resumed


def _check_planned(
    meta: CheckpointMeta, checkpoint_id: str, entries: Mapping[str, PlanEntry]
) -> None:
    """Raises `CaptureError`: the plan has changed."""
    entry = entries.get(checkpoint_id)
    if entry is None:
        raise CaptureError("the plan has no such checkpoint any more")
    if meta.id != checkpoint_id:
        raise CaptureError(f"its record is that of {meta.id}")
    if tuple(meta.imports) != tuple(entry.imports):
        planned = ",".join(entry.imports) or "nothing"
        raise CaptureError(
            f"it imports {','.join(meta.imports) or 'nothing'}, and the plan now says {planned}"
        )
