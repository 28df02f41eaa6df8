"""What a checkpoint is worth, to bring and to keep the most valuable ones first."""

from collections.abc import Mapping

from readie_wire.catalogue import Catalogue


def seconds_saved(catalogue: Catalogue) -> Mapping[str, float]:
    """By checkpoint: the load times of all it holds, less what restoring its size costs."""
    return {
        checkpoint.id: sum(
            catalogue.items[name].load_time for name in checkpoint.items if name in catalogue.items
        )
        - catalogue.alpha * checkpoint.size_mb
        for checkpoint in catalogue.checkpoints
    }
