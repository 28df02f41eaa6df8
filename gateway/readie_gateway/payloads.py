"""The bytes of a call while they arrive: small ones in memory, large ones in a temporary file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from readie_gateway.errors import NoSpaceError
from readie_wire.http import INLINE_LIMIT_BYTES


class Payload:
    """Grows by `write`. Up to the inline limit it is `data`; above, it is the file at `path`.

    A context manager: the file is gone after the block.
    """

    def __init__(self, data: bytes = b"") -> None:
        self._pieces = [data] if data else []
        self._file: IO[bytes] | None = None
        self.size = len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # what could not be written is not needed any more
                self._file.close()

    def write(self, piece: bytes) -> None:
        """Raises `NoSpaceError`."""
        self.size += len(piece)
        if self._file is None and self.size <= INLINE_LIMIT_BYTES:
            self._pieces.append(piece)
            return
        with _refusing_when_full():
            if self._file is None:
                # Closed, and thereby removed, when the block that holds the payload ends.
                self._file = tempfile.NamedTemporaryFile(prefix="readie-payload-")  # noqa: SIM115
                self._file.writelines(self._pieces)
                self._pieces.clear()
            self._file.write(piece)

    @property
    def data(self) -> bytes:
        """All of it. Empty for a payload that is in a file."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    @property
    def path(self) -> Path | None:
        """The file of a large payload, with everything written to it; else ``None``.

        Raises `NoSpaceError`.
        """
        if self._file is None:
            return None
        with _refusing_when_full():
            self._file.flush()
        return Path(self._file.name)


@contextmanager
def _refusing_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoSpaceError(
            f"the gateway has no room for a call of this size now: {error.strerror}"
        ) from error
