"""A generation's folder as a list of files with hashes, when it is whole and fit to be published."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_pipeline.errors import PublishError
from readie_wire.catalogue import CatalogueError, load_catalogue
from readie_wire.manifest import CheckpointMeta, Manifest, ManifestError, load_manifest, load_meta
from readie_wire.publication import (
    ANY_ROOTFS,
    CATALOGUE_NAME,
    CHECKPOINTS_FOLDER,
    MANIFEST_NAME,
    PackingList,
    PublicationError,
    PublishedFile,
    check_name,
)

META_NAME = "meta.json"

# Goes through file names and may show how far it is.
Track = Callable[[Sequence[str], str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Stock:
    """What is to be published. ``paths`` tells where each file of the list is."""

    manifest: Manifest
    listed: PackingList
    paths: Mapping[str, Path]


def take_stock(folder: Path, track: Track, *, allow_host_rootfs: bool = False) -> Stock:
    """Hash every file of a generation and compare it with what the generation says of itself.

    Raises `PublishError` for what is incomplete, damaged, or has no place in a generation.
    """
    paths = _files(folder)
    manifest = _read_manifest(folder)
    if manifest.rootfs == "host" and not allow_host_rootfs:
        raise PublishError(
            f"{folder} was captured on this machine's own root filesystem and can be restored only "
            "where that is the same; publish it with --allow-host-rootfs if your workers have it"
        )
    files = {name: _hashed(name, paths[name]) for name in track(sorted(paths), "hashing")}
    _check_catalogue(folder, manifest, files)
    for checkpoint in manifest.checkpoints:
        _check_checkpoint(folder, checkpoint.id, files)
    strays = {file.checkpoint for file in files.values()} - {None}
    strays -= {checkpoint.id for checkpoint in manifest.checkpoints}
    if strays:
        raise PublishError(f"{folder} holds {sorted(map(str, strays))[0]}, which it does not list")
    listed = PackingList(
        flavor=manifest.flavor,
        generation=manifest.generation,
        rootfs=manifest.rootfs_digest or ANY_ROOTFS,
        runtime=manifest.runtime,
        files=tuple(files.values()),
    )
    try:  # the same checks that every reader makes
        PackingList.load(listed.dump())
    except PublicationError as error:
        raise PublishError(f"{folder} cannot be published: {error}") from error
    return Stock(manifest, listed, paths)


def _files(folder: Path) -> dict[str, Path]:
    """Every file by its name in the generation."""
    if not (folder / MANIFEST_NAME).is_file():
        raise PublishError(f"{folder} is no generation: it holds no {MANIFEST_NAME}")
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise PublishError(f"{path} is neither a file nor a folder; only these are published")
        if path.is_file():
            try:
                name = check_name(path.relative_to(folder).as_posix())
            except PublicationError as error:
                raise PublishError(f"{folder} cannot be published: {error}") from error
            found[name] = path
    return found


def _hashed(name: str, path: Path) -> PublishedFile:
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return PublishedFile(name, file.tell(), sha256)
    except OSError as error:
        raise PublishError(f"{path} cannot be read: {error.strerror}") from error


def _read_manifest(folder: Path) -> Manifest:
    try:
        return load_manifest((folder / MANIFEST_NAME).read_bytes())
    except (OSError, ManifestError) as error:
        raise PublishError(f"{folder / MANIFEST_NAME}: {error}") from error


def _check_catalogue(folder: Path, manifest: Manifest, files: Mapping[str, PublishedFile]) -> None:
    path = folder / CATALOGUE_NAME
    catalogue = files.get(CATALOGUE_NAME)
    if catalogue is None or catalogue.sha256 != manifest.catalogue_sha256:
        raise PublishError(f"{path} is not the catalogue that {MANIFEST_NAME} names")
    try:
        load_catalogue(path.read_bytes())
    except (OSError, CatalogueError) as error:
        raise PublishError(f"{path}: {error}") from error


def _check_checkpoint(folder: Path, checkpoint_id: str, files: Mapping[str, PublishedFile]) -> None:
    """Its images are those that were captured, and all of them are there."""
    name = f"{CHECKPOINTS_FOLDER}/{checkpoint_id}"
    for image in _read_meta(folder / name / META_NAME).image_files:
        found = files.get(f"{name}/{image.path}")
        if found is None or (found.size, found.sha256) != (image.size, image.sha256):
            raise PublishError(
                f"{folder / name / image.path} is missing or not what was captured; capture again"
            )


def _read_meta(path: Path) -> CheckpointMeta:
    try:
        return load_meta(path.read_bytes())
    except (OSError, ManifestError) as error:
        raise PublishError(f"{path}: {error}") from error
