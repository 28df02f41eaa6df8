"""Writes small fork generations, as a capture leaves them on disk."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from platform import python_version
from typing import Any

from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, dump_catalogue
from readie_wire.manifest import (
    CheckpointMeta,
    Manifest,
    ManifestCheckpoint,
    StartupSeconds,
    dump_manifest,
    dump_meta,
)

EMPTY = "checkpoint_0"


def write_generation(
    folder: Path,
    checkpoints: Mapping[str, Sequence[str]],
    *,
    load_times: Mapping[str, float] | None = None,
    planned_savings: Mapping[str, float] | None = None,
    import_environment: Mapping[str, Sequence[str]] | None = None,
    created: str = "20260102T030405",
    **changes: Any,
) -> Manifest:
    """A generation of checkpoints given as id → module names; ``changes`` replace manifest fields.

    Every module is an item of its own that takes ``load_times`` (0.5 s) to load.
    """
    names = sorted({name for imports in checkpoints.values() for name in imports})
    times = load_times or {}
    catalogue = Catalogue(
        flavor=str(changes.get("flavor", "cpu")),
        alpha=0.001,
        items={name: Item(times.get(name, 0.5), 1.0) for name in [*names, *times]},
        checkpoints=[
            CatalogueCheckpoint(name, items=imports, canonical=imports, size_mb=len(imports))
            for name, imports in checkpoints.items()
        ],
    )
    data = dump_catalogue(catalogue)
    variables, savings = import_environment or {}, planned_savings or {}
    manifest = Manifest(
        flavor=catalogue.flavor,
        runtime="fork",
        created=created,
        python=python_version(),
        catalogue_sha256=hashlib.sha256(data).hexdigest(),
        checkpoints=[
            ManifestCheckpoint(
                name, imports, len(imports), variables.get(name, ()), savings.get(name, 0.0)
            )
            for name, imports in checkpoints.items()
        ],
        startup_s=StartupSeconds(cold=0.05, restore=0.001),
    )
    manifest = replace(manifest, **changes).sealed()
    for entry in manifest.checkpoints:
        place = folder / "checkpoints" / entry.id
        place.mkdir(parents=True, exist_ok=True)
        meta = CheckpointMeta(entry.id, manifest.runtime, entry.imports, entry.size_mb)
        (place / "meta.json").write_bytes(dump_meta(meta))
    (folder / "catalogue.json").write_bytes(data)
    partial = folder / "manifest.json.new"
    partial.write_bytes(dump_manifest(manifest))
    partial.replace(folder / "manifest.json")
    return manifest
