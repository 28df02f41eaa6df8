"""Reads a generation from disk and judges each of its checkpoints: can this worker restore it?

Nothing here restores anything; `holdings` gives what is usable to the runtime.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readie_wire.catalogue import CatalogueError, load_catalogue
from readie_wire.eligibility import CheckpointFacts, checkpoint_facts
from readie_wire.holdings import Refusal, RefusalKind
from readie_wire.keys import InvalidIdError, check_id
from readie_wire.manifest import Manifest, ManifestCheckpoint, ManifestError, load_manifest
from readie_wire.pricing import PricedCatalogue
from readie_wire.versions import MANIFEST_VERSION, READABLE_PROTOCOLS, python_minor
from readie_worker.errors import GenerationError, UnfitError
from readie_worker.sandbox.api import Checkpoint
from readie_worker.valuing import expected_savings

MANIFEST = "manifest.json"
CATALOGUE = "catalogue.json"
CHECKPOINTS = "checkpoints"
META = "meta.json"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a checkpoint is compared with. ``python`` is the full version of the interpreter.

    ``strict``: a checkpoint of another patch version of Python is refused as well.
    """

    flavor: str
    runtime: str
    python: str
    strict: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that was read. ``usable`` and ``refused`` (with the reason) are by checkpoint id.

    ``sizes`` are the bytes on the disk of those that are usable, ``saved`` the seconds that each is
    expected to save.
    """

    manifest: Manifest
    priced: PricedCatalogue
    facts: Mapping[str, CheckpointFacts]
    usable: Mapping[str, Checkpoint]
    refused: Mapping[str, Refusal]
    sizes: Mapping[str, int]
    saved: Mapping[str, float]

    @property
    def id(self) -> str:
        return self.manifest.generation

    def key(self, checkpoint_id: str) -> str:
        return f"{self.id}/{checkpoint_id}"


# A manifest's path, inode, size and mtime in ns; the mtime of the folder of checkpoints.
Signature = tuple[Path, int, int, int, int]


def find_manifest(root: Path, flavor: str) -> Path | None:
    """The manifest below ``--generations DIR``: of DIR itself, else of its ``{flavor}/`` folder."""
    for folder in (root, root / flavor):
        if (folder / MANIFEST).is_file():
            return folder / MANIFEST
    return None


def signature(root: Path, flavor: str) -> Signature | None:
    """Changes whenever the manifest was replaced, or a checkpoint has arrived; None without one.

    The path in it leads through no link: what a link stands for may change while it is read.
    """
    found = find_manifest(root, flavor)
    if found is None:
        return None
    try:
        manifest = found.resolve(strict=True)
        status = manifest.stat()
    except OSError:
        return None
    return (manifest, status.st_ino, status.st_size, status.st_mtime_ns, _changed(manifest.parent))


def _changed(folder: Path) -> int:
    """When a checkpoint last came or went, in ns; 0 without any."""
    try:
        return (folder / CHECKPOINTS).stat().st_mtime_ns
    except OSError:
        return 0


def read_generation(folder: Path, machine: Machine) -> Generation:
    """Read manifest, catalogue and every ``meta.json``; judge each checkpoint.

    Blocking: a catalogue may have hundreds of MB. Raises `GenerationError` when nothing of the
    generation can be used, with the reason.
    """
    manifest = _read_manifest(folder, machine)
    priced = _read_catalogue(folder, manifest)
    usable: dict[str, Checkpoint] = {}
    refused: dict[str, Refusal] = {}
    for entry in manifest.checkpoints:
        try:
            usable[entry.id] = _read_checkpoint(folder, manifest, entry, machine)
        except UnfitError as error:
            refused[entry.id] = error.refusal
    variables = {entry.id: entry.import_environment for entry in manifest.checkpoints}
    facts = checkpoint_facts(priced.catalogue, manifest.generation, variables)
    return Generation(
        manifest=manifest,
        priced=priced,
        facts={one.id: one for one in facts},
        usable=usable,
        refused=refused,
        sizes={name: folder_bytes(folder / CHECKPOINTS / name) for name in usable},
        saved=expected_savings(manifest, priced.catalogue),
    )


def folder_bytes(folder: Path) -> int:
    """Of the files in it; 0 when it is gone."""
    try:
        return sum(entry.stat().st_size for entry in folder.iterdir() if entry.is_file())
    except OSError:
        return 0


def _read_manifest(folder: Path, machine: Machine) -> Manifest:
    try:
        manifest = load_manifest((folder / MANIFEST).read_bytes())
        check_id(manifest.generation, "generation")
    except (OSError, ManifestError, InvalidIdError) as error:
        raise GenerationError(f"{folder / MANIFEST}: {error}") from error
    if manifest.flavor != machine.flavor:
        raise GenerationError(
            f"generation {manifest.generation} is for {manifest.flavor} workers, "
            f"this one is a {machine.flavor} worker"
        )
    if manifest.protocol not in READABLE_PROTOCOLS:
        readable = ", ".join(str(number) for number in sorted(READABLE_PROTOCOLS))
        raise GenerationError(
            f"generation {manifest.generation} was captured with executor protocol "
            f"{manifest.protocol}; this worker speaks {readable}: capture it again"
        )
    return manifest


def _read_catalogue(folder: Path, manifest: Manifest) -> PricedCatalogue:
    path = folder / CATALOGUE
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != manifest.catalogue_sha256:
            raise GenerationError(
                f"{path} is not the catalogue that {MANIFEST} names; publish the generation whole"
            )
        return PricedCatalogue(load_catalogue(data))
    except (OSError, CatalogueError) as error:
        raise GenerationError(f"{path}: {error}") from error


def _read_checkpoint(
    folder: Path, manifest: Manifest, entry: ManifestCheckpoint, machine: Machine
) -> Checkpoint:
    """Raises `UnfitError`."""
    if unfit := misfit(manifest, machine):
        raise UnfitError(unfit.kind, unfit.reason)
    try:
        place = folder / CHECKPOINTS / check_id(entry.id, "checkpoint")
        if not place.is_dir():
            raise UnfitError(RefusalKind.ABSENT, "it has not arrived on this worker's disk")
        meta = _read_meta(place / META)
    except (OSError, InvalidIdError) as error:
        raise UnfitError(RefusalKind.DAMAGED, str(error)) from error
    return Checkpoint(
        key=f"{manifest.generation}/{entry.id}", imports=entry.imports, path=place, meta=meta
    )


def _read_meta(path: Path) -> Mapping[str, Any]:
    """The raw object: a runtime compares fields of its own that no other part knows."""
    try:
        meta = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnfitError(RefusalKind.DAMAGED, f"{path} is not JSON: {error}") from error
    if not isinstance(meta, dict) or meta.get("version") != MANIFEST_VERSION:
        raise UnfitError(RefusalKind.DAMAGED, f"{path} is not of version {MANIFEST_VERSION}")
    return meta


def misfit(manifest: Manifest, machine: Machine) -> Refusal | None:
    """Why no checkpoint of the generation can be restored here; None when they can.

    A fork worker builds its zygotes itself, from the canonical imports of any generation; a gVisor
    worker needs the images that only a gVisor capture has.
    """
    if machine.runtime != "fork" and manifest.runtime != machine.runtime:
        reason = f"captured for {manifest.runtime}, this worker runs {machine.runtime}"
        return Refusal(RefusalKind.RUNTIME, reason)
    exact = machine.strict and machine.runtime != "fork"
    wanted, ours = manifest.python, machine.python
    if not exact:
        wanted, ours = python_minor(wanted), python_minor(ours)
    if wanted != ours:
        reason = f"captured with Python {wanted}, this worker runs {ours}"
        return Refusal(RefusalKind.PYTHON, reason)
    return None


def describe_refusals(refused: Mapping[str, Refusal]) -> Sequence[str]:
    """One sentence for each refused checkpoint, for the worker's record."""
    return [f"{checkpoint} is not used: {reason}" for checkpoint, reason in refused.items()]
