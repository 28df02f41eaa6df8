"""Writes what was measured and captured as a catalogue."""

from collections.abc import Mapping
from dataclasses import replace

from readie_pipeline.measure.metadata import Measurement, Metadata
from readie_pipeline.plan.plan import PlanEntry
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, ResourceType


def provided(
    metadata: Metadata, providers: Mapping[str, str], distributions: Mapping[str, str]
) -> Metadata:
    """The measurements that hold where these distributions are installed.

    The metadata may come from another image: only packages that a distribution here provides
    (``providers``: module to distribution) are carried over, with the version that is here.
    Datasets, models and tokenizers have no distribution, and always are.
    """
    kept: dict[str, Measurement] = {}
    for name, measured in metadata.items.items():
        if measured.resource_type is not ResourceType.PACKAGE:
            kept[name] = measured
        elif provider := providers.get(name):
            version = distributions.get(provider, "")
            kept[name] = replace(measured, distribution=provider, version=version)
    return Metadata(metadata.python, kept, distributions, metadata.failures)


def make_catalogue(
    metadata: Metadata, captured: Mapping[str, PlanEntry], *, flavor: str, alpha: float
) -> Catalogue:
    """``captured`` maps checkpoint ids to what was captured under them, in the order of the plan."""
    checkpoints = []
    for checkpoint_id, entry in captured.items():
        items = metadata.held_by(entry.imports)
        checkpoints.append(
            CatalogueCheckpoint(
                id=checkpoint_id,
                items=items,
                canonical=tuple(entry.imports),
                size_mb=metadata.size_mb(items),
            )
        )
    return Catalogue(
        flavor=flavor,
        alpha=alpha,
        distributions=metadata.distributions,
        items={name: measured.item() for name, measured in sorted(metadata.items.items())},
        checkpoints=tuple(checkpoints),
    )
