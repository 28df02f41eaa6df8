"""What every blob store does, and the keys it is given."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

SWEEP_AT_ONCE = 1_000  # owners looked at in one sweep

# Of these owners (call ids), which still have a record?
StillKnown = Callable[[Sequence[str]], Awaitable[Collection[str]]]


def payload_key(call_id: str) -> str:
    return f"blobs/{call_id}/payload"


def result_key(call_id: str, attempt: int) -> str:
    return f"blobs/{call_id}/{attempt}/result"


class BlobStore(Protocol):
    """Bytes by key. Raises `BlobKeyError` for a key that is none, `BlobUnavailableError`."""

    async def put(self, key: str, data: bytes | Path) -> None:
        """Store bytes, or a copy of a file. Whole or not at all; replaces what was there."""
        ...

    async def get(self, key: str) -> bytes:
        """All bytes of a blob. Raises `BlobMissingError`."""
        ...

    async def delete(self, key: str) -> None:
        """Remove a blob; one that is not there is no error."""
        ...

    async def exists(self, key: str) -> bool: ...

    async def sweep(self, older_than_s: float, known: StillKnown) -> list[str]:
        """Remove the blobs of owners whose oldest blob has that age and that are not ``known``.

        The owner is the second part of a key. Bounded; answers the owners removed.
        """
        ...
