"""Generations of any size: a captured one with image files that were made up.

Two thirds of what is made up are as compressible as a process's memory is, the rest is noise.
"""

import hashlib
import random
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from readie_wire.manifest import (
    CheckpointMeta,
    MappedFile,
    dump_manifest,
    dump_meta,
    load_manifest,
    load_meta,
)

MB = 1_000_000
PIECE_BYTES = 1 << 20
PAGE_BYTES = 4096
IMAGE = "pages.img"


def with_images(captured: Path, folder: Path, sizes: Mapping[str, int], seed: int) -> str:
    """A new generation in ``folder``: the checkpoints of ``captured``, each with an image of so many
    bytes (none for those that ``sizes`` leaves out); its id. The same seed makes the same bytes."""
    manifest = load_manifest((captured / "manifest.json").read_bytes())
    for one in manifest.checkpoints:
        place = folder / "checkpoints" / one.id
        place.mkdir(parents=True)
        meta = load_meta((captured / "checkpoints" / one.id / "meta.json").read_bytes())
        if size := sizes.get(one.id, 0):
            meta = _with_image(meta, place / IMAGE, size, f"{seed} {one.id}")
        (place / "meta.json").write_bytes(dump_meta(meta))
    (folder / "catalogue.json").write_bytes((captured / "catalogue.json").read_bytes())
    manifest = replace(manifest, nonce=secrets.token_hex(8)).sealed()
    (folder / "manifest.json").write_bytes(dump_manifest(manifest))
    return manifest.generation


def _with_image(meta: CheckpointMeta, path: Path, size: int, seed: str) -> CheckpointMeta:
    drawn = random.Random(seed)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        left = size
        while left:
            piece = _piece(drawn)[:left]
            file.write(piece)
            digest.update(piece)
            left -= len(piece)
    image = MappedFile(path.name, size, digest.hexdigest())
    return replace(meta, bytes_on_disk=size, image_files=(image,))


def _piece(drawn: random.Random) -> bytes:
    """A third zeros, a third pages that repeat words, a third noise."""
    third = PIECE_BYTES // 3
    words = drawn.randbytes(64) * (PAGE_BYTES // 64)
    pages = b"".join(drawn.randbytes(16) + words[16:] for _ in range(third // PAGE_BYTES))
    return bytes(third) + pages + drawn.randbytes(PIECE_BYTES - third - len(pages))
