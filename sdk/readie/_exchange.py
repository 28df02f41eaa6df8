"""One HTTP exchange as the SDK sees it: the seam between what is said and how it is carried.

`readie._transport` is the real transport, `readie.testing` has one without a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from readie._steps import Steps


@dataclass(frozen=True, slots=True)
class Request:
    """``body`` in pieces, sent one by one. ``patience``: seconds that it may take to be answered.

    The service may see it twice, when a connection is lost: it is one that changes nothing, or carries
    an idempotency key.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[bytes] = ()
    patience: float = 30.0


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response; header names in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Fault(Exception):  # noqa: N818 - never leaves the SDK: a call's steps turn it into an error
    """The exchange did not come to its end."""


class Unreachable(Fault):
    """There is no connection to the service; nothing was sent."""


class Broken(Fault):
    """The connection was lost, or spoke no HTTP; the service may have taken the request."""


class Silent(Fault):
    """Nothing came for as long as the request's patience."""


class Response(Protocol):
    """A response whose body is still to be read. ``close`` may be called at any time, repeatedly."""

    @property
    def head(self) -> Head: ...

    def read(self, patience: float) -> Steps[bytes]:
        """The next piece of the body, empty at its end. Raises `Broken`, and `Silent` when nothing
        comes for ``patience`` seconds."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Carries exchanges, from any thread and any event loop."""

    def exchange(self, request: Request) -> Steps[Response]:
        """Send ``request``, read the response's head. Raises the `Fault` classes."""
        ...

    def close(self) -> None: ...


def read_all(response: Response, patience: float, limit: int) -> Steps[bytes]:
    """The whole body. Raises `Broken` above ``limit`` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := (yield from response.read(patience)):
        size += len(piece)
        if size > limit:
            raise Broken(f"the service answered with more than {limit} bytes")
        pieces.append(piece)
    return b"".join(pieces)
