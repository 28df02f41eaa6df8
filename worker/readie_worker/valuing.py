"""What a checkpoint is worth, to bring and to keep the most valuable ones first."""

from collections.abc import Mapping

from readie_wire.catalogue import Catalogue
from readie_wire.manifest import Manifest


def expected_savings(manifest: Manifest, catalogue: Catalogue) -> Mapping[str, float]:
    """Seconds by checkpoint, comparable within the generation only.

    What the planner expects over its corpus tells how often each is wanted. Where nothing was
    planned it is what one start saves.
    """
    planned = {entry.id: entry.planned_saving_s for entry in manifest.checkpoints}
    return planned if any(planned.values()) else _saved_by_one_start(catalogue)


def _saved_by_one_start(catalogue: Catalogue) -> Mapping[str, float]:
    """The load times of all that a checkpoint holds, less what restoring its size costs."""
    return {
        checkpoint.id: sum(
            catalogue.items[name].load_time for name in checkpoint.items if name in catalogue.items
        )
        - catalogue.alpha * checkpoint.size_mb
        for checkpoint in catalogue.checkpoints
    }
