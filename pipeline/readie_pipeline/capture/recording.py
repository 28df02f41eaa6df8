"""Writes down what was captured: ``meta.json`` of each checkpoint, the catalogue, the manifest."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from readie_pipeline.capture.capturer import Platform
from readie_pipeline.capture.cataloguing import make_catalogue
from readie_pipeline.capture.digests import executor_digest
from readie_pipeline.capture.fitting import Fit, fit_alpha
from readie_pipeline.capture.staging import CATALOGUE, CHECKPOINTS, MANIFEST, META, write_file
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry
from readie_wire.catalogue import Catalogue, dump_catalogue
from readie_wire.eligibility import checkpoint_facts
from readie_wire.manifest import (
    CheckpointMeta,
    Manifest,
    ManifestCheckpoint,
    StartupSeconds,
    dump_manifest,
    dump_meta,
)


@dataclass(frozen=True, slots=True)
class Ground:
    """What all checkpoints of the generation have in common; see `Capturer`."""

    runtime: str
    size_matters: bool
    platform: Platform
    cold_s: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """A written generation. ``fit`` is what the restores say about alpha.

    ``size_matters`` is whether this runtime reads from disk what it restores: else the planned
    alpha is kept as the price of memory, and the fitted one serves predictions only.
    """

    manifest: Manifest
    catalogue: Catalogue
    planned_alpha: float
    fit: Fit
    size_matters: bool


def record(
    draft: Path,
    plan: Plan,
    metadata: Metadata,
    entries: Mapping[str, PlanEntry],
    captured: Mapping[str, CheckpointMeta],
    ground: Ground,
) -> Recorded:
    """Write every file of the generation but the images into ``draft``.

    The catalogue gets the fitted alpha; where there is none, or a size is not read from disk, the
    planned one is kept.
    """
    done = {name: entry for name, entry in entries.items() if name in captured}
    catalogue = make_catalogue(metadata, done, flavor=plan.flavor, alpha=plan.alpha)
    fit = _fit(catalogue, captured)
    if fit.alpha is not None and ground.size_matters:
        catalogue = replace(catalogue, alpha=fit.alpha)
    platform = ground.platform
    _write_metas(draft, catalogue, captured)
    catalogue_bytes = dump_catalogue(catalogue)
    write_file(draft / CATALOGUE, catalogue_bytes)
    manifest = Manifest(
        flavor=plan.flavor,
        runtime=ground.runtime,
        created=datetime.now(UTC).strftime("%Y%m%dT%H%M%S"),
        python=platform.python,
        catalogue_sha256=hashlib.sha256(catalogue_bytes).hexdigest(),
        checkpoints=tuple(
            ManifestCheckpoint(
                id=one.id,
                imports=one.canonical,
                size_mb=one.size_mb,
                import_environment=tuple(captured[one.id].import_environment),
                planned_saving_s=round(max(0.0, entries[one.id].seconds_saved), 6),
            )
            for one in catalogue.checkpoints
        ),
        python_path=platform.python_path,
        executor_command=tuple(platform.executor_command),
        executor_digest=executor_digest(),
        rootfs=platform.rootfs,
        rootfs_digest=platform.rootfs_digest,
        startup_s=StartupSeconds(
            cold=round(ground.cold_s, 6),
            restore=round(fit.floor_s, 6),
            import_factor=_import_factor(catalogue, captured),
            per_mb=fit.alpha if fit.alpha is not None and not ground.size_matters else 0.0,
        ),
        gvisor=platform.gvisor,
        nonce=secrets.token_hex(8),
        planned_alpha=plan.alpha,
    ).sealed()
    write_file(draft / MANIFEST, dump_manifest(manifest))
    return Recorded(manifest, catalogue, plan.alpha, fit, ground.size_matters)


def _import_factor(catalogue: Catalogue, captured: Mapping[str, CheckpointMeta]) -> float:
    """What the captures' imports took, to what the catalogue says: 1 where nothing was imported.

    A sandbox, or another machine than that of the measurements, imports at a speed of its own.
    """
    said = sum(
        catalogue.items[name].load_time
        for one in catalogue.checkpoints
        for name in one.items
        if name in catalogue.items
    )
    took = sum(captured[one.id].import_s for one in catalogue.checkpoints)
    return round(took / said, 3) if said and took else 1.0


def _fit(catalogue: Catalogue, captured: Mapping[str, CheckpointMeta]) -> Fit:
    measured = [
        (one.size_mb, seconds)
        for one in catalogue.checkpoints
        if (seconds := captured[one.id].restore_s) is not None
    ]
    return fit_alpha([size for size, _ in measured], [seconds for _, seconds in measured])


def _write_metas(draft: Path, catalogue: Catalogue, captured: Mapping[str, CheckpointMeta]) -> None:
    for one, facts in zip(catalogue.checkpoints, checkpoint_facts(catalogue), strict=True):
        meta = replace(
            captured[one.id],
            imports=tuple(one.canonical),
            size_mb=one.size_mb,
            distributions=dict(sorted(facts.distributions.items())),
        )
        write_file(draft / CHECKPOINTS / one.id / META, dump_meta(meta))
