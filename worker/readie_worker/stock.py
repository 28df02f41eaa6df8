"""What this worker has of each generation, put together for its record."""

from collections.abc import Mapping

from readie_wire.holdings import (
    GenerationState,
    HeldCheckpoint,
    HeldGeneration,
    Holding,
    Refusal,
    Tier,
)
from readie_worker.generations import Generation
from readie_worker.holdings import Holdings
from readie_worker.local_generations import Stored
from readie_worker.syncing import BucketSync

CACHED_WHOLE = 0.95  # of its bytes: a few pages that were reclaimed make no restore slow


def tell_holding(holdings: Holdings, sync: BucketSync | None, cached: Mapping[str, int]) -> Holding:
    """``cached`` are bytes by checkpoint key, where somebody has looked. Called from any thread."""
    served = holdings.generation
    stored = dict(sync.stored) if sync else {}
    for generation in (served, holdings.turned_down):
        if generation is not None:
            stored.setdefault(generation.id, _in_folder(generation))
    arriving = sync.state.arriving if sync else ""
    ready = {checkpoint.key for checkpoint in holdings.checkpoints}
    told = []
    for generation_id, checkpoints in stored.items():
        is_served = served is not None and generation_id == served.id
        refused = holdings.refused_of(generation_id)
        if sync is not None:
            refused = {**refused, **sync.left_out(generation_id)}
        told.append(
            HeldGeneration(
                generation_id,
                _state(is_served, generation_id == arriving),
                {
                    name: _checkpoint(
                        f"{generation_id}/{name}", one, ready, cached, refused.get(name)
                    )
                    for name, one in checkpoints.items()
                },
            )
        )
    return Holding(tuple(told), sync.state if sync else None, holdings.swaps, holdings.error)


def _state(is_served: bool, is_arriving: bool) -> GenerationState:
    if is_served:
        return GenerationState.SERVED
    return GenerationState.ARRIVING if is_arriving else GenerationState.KEPT


def _in_folder(generation: Generation) -> Mapping[str, Stored]:
    """Of a generation that came without a packing list: what is not there has no known size."""
    sizes = generation.sizes
    return {
        entry.id: Stored(sizes.get(entry.id, 0), entry.id in sizes)
        for entry in generation.manifest.checkpoints
    }


def _checkpoint(
    key: str,
    stored: Stored,
    ready: set[str],
    cached: Mapping[str, int],
    refusal: Refusal | None,
) -> HeldCheckpoint:
    found = cached.get(key)
    tier = Tier.DISK if stored.here else Tier.REMOTE
    if stored.here and found is not None and found >= CACHED_WHOLE * stored.size:
        tier = Tier.MEMORY
    return HeldCheckpoint(stored.size, tier, key in ready, found, refusal)
