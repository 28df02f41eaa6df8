"""Blobs as files of one folder."""

import asyncio
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_infra.blobs.api import SWEEP_AT_ONCE, StillKnown
from readie_infra.errors import BlobKeyError, BlobMissingError, BlobUnavailableError
from readie_infra.flushing import flush
from readie_wire.keys import InvalidIdError, check_id

_PARTIAL = ".partial"  # no key can begin with a dot, so none can name a half-written file


class DirectoryBlobs:
    """Blobs as files below ``root``, which is made when the first one is written.

    ``durable`` flushes file and folder to the disk before `put` returns. Without it a blob
    survives the death of any process, but not that of the machine.
    """

    def __init__(self, root: Path, *, durable: bool = False) -> None:
        self._root = root
        self._durable = durable

    async def put(self, key: str, data: bytes | Path) -> None:
        path = self._path(key)
        await asyncio.to_thread(self._write, key, path, data)

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        with _translated(key):
            return await asyncio.to_thread(path.read_bytes)

    async def delete(self, key: str) -> None:
        path = self._path(key)
        with _translated(key):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def exists(self, key: str) -> bool:
        path = self._path(key)
        with _translated(key):
            return await asyncio.to_thread(path.is_file)

    async def sweep(self, older_than_s: float, known: StillKnown) -> list[str]:
        before = time.time() - older_than_s
        removed: list[str] = []
        for space, owners in await asyncio.to_thread(self._old_owners, before):
            kept = set(await known(owners))
            gone = [owner for owner in owners if owner not in kept]
            for owner in gone:
                await asyncio.to_thread(shutil.rmtree, space / owner, ignore_errors=True)
            removed += gone
        return removed

    def _path(self, key: str) -> Path:
        try:
            parts = [check_id(part, "part") for part in key.split("/")]
        except InvalidIdError as error:
            raise BlobKeyError(key, str(error)) from error
        return self._root.joinpath(*parts)

    def _write(self, key: str, path: Path, data: bytes | Path) -> None:
        partial = self._root / _PARTIAL / secrets.token_hex(8)
        with _translated(key):
            partial.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                if isinstance(data, Path):
                    shutil.copyfile(data, partial)
                else:
                    partial.write_bytes(data)
                if self._durable:
                    flush(partial)
                partial.replace(path)
                if self._durable:
                    flush(path.parent)
            except OSError:
                partial.unlink(missing_ok=True)
                raise

    def _old_owners(self, before: float) -> list[tuple[Path, list[str]]]:
        """Owners by space, oldest first: call ids sort by time, so a few looks are enough."""
        if not self._root.is_dir():
            return []
        for partial in (self._root / _PARTIAL).glob("*"):
            if _modified(partial) < before:
                partial.unlink(missing_ok=True)  # its writer died
        spaces = [path for path in self._root.iterdir() if path.name != _PARTIAL and path.is_dir()]
        return [(space, _oldest(space, before)) for space in spaces]


def _oldest(space: Path, before: float) -> list[str]:
    folders = sorted(space.iterdir())[:SWEEP_AT_ONCE]
    return [folder.name for folder in folders if _modified(folder) < before]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")  # somebody else removed it


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissingError(key, "there is none") from error
    except OSError as error:
        raise BlobUnavailableError(key, str(error)) from error
