"""Generations with image files, ready to be published, and a store that dies on the way."""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from readie_infra.objects import ObjectStore
from readie_pipeline.publish.stocktaking import Stock, take_stock
from readie_wire.manifest import CheckpointMeta, Manifest, MappedFile, dump_meta
from support.generations import write_generation

IMAGE = "pages.img"


def write_captured(
    folder: Path,
    checkpoints: Mapping[str, Sequence[str]],
    images: Mapping[str, bytes] | None = None,
    **changes: Any,
) -> Manifest:
    """A generation whose checkpoints have an image file each, of random bytes unless given."""
    manifest = write_generation(folder, checkpoints, **changes)
    for entry in manifest.checkpoints:
        place = folder / "checkpoints" / entry.id
        data = (images or {}).get(entry.id, secrets.token_bytes(50_000) + bytes(100_000))
        (place / IMAGE).write_bytes(data)
        meta = CheckpointMeta(
            entry.id,
            manifest.runtime,
            entry.imports,
            entry.size_mb,
            bytes_on_disk=len(data),
            image_files=[MappedFile(IMAGE, len(data), hashlib.sha256(data).hexdigest())],
        )
        (place / "meta.json").write_bytes(dump_meta(meta))
    return manifest


def stock_of(folder: Path) -> Stock:
    return take_stock(folder, quietly, allow_host_rootfs=True)


def quietly(names: Sequence[str], _: str) -> Sequence[str]:
    return names


class Killed(BaseException):
    """What a process that was killed does: nothing more, not even cleaning up."""


class DyingStore:
    """A store whose user is dead after ``operations``: nothing of what it still tries happens.

    The operation that would be one too many happens or not, as ``last_words`` says; its answer is
    never seen.
    """

    def __init__(self, store: ObjectStore, operations: int, *, last_words: bool) -> None:
        self._store = store
        self._left = operations
        self._last_words = last_words
        self.url = store.url

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._store, name)

        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == -1 and self._last_words:
                operation(*arguments)
            if self._left < 0:
                raise Killed
            return operation(*arguments)

        return counted
