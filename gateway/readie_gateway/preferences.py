"""How a client wants to be answered: ``Accept``, ``Prefer`` (RFC 7240) and ``Last-Event-ID``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from readie_gateway.errors import InvalidRequestError, NotAcceptableError
from readie_wire.http import MEDIA_FRAMES, MEDIA_JSON, MEDIA_SSE, PREFER

_WAIT = re.compile(r"\d{1,6}(\.\d{1,3})?")
_SEQ = re.compile(r"\d{1,15}")


@dataclass(frozen=True, slots=True)
class Preference:
    """``asynchronous``: the caller does not wait, so the call is kept whatever becomes of them.

    ``wait`` is how long to hold the answer, in seconds; ``None`` leaves it to the gateway.
    """

    asynchronous: bool = False
    wait: float | None = None


def read_preference(request: Request) -> Preference:
    """The ``Prefer`` header; preferences that are not known are ignored, as RFC 7240 has it."""
    header = request.headers.get(PREFER)
    if not header:
        return Preference()
    asynchronous, wait = False, None
    for part in header.split(","):
        name, _, value = (piece.strip() for piece in part.partition(";")[0].partition("="))
        if name.lower() == "respond-async":
            asynchronous = True
        elif name.lower() == "wait":
            wait = _seconds(value.strip('"'), "Prefer")
    if asynchronous and wait is None:
        wait = 0.0
    return Preference(asynchronous, wait)


def read_wait(request: Request) -> float | None:
    """``?wait=`` in seconds; a route without it answers at once."""
    given = request.query_params.get("wait")
    return None if given is None else _seconds(given, "wait")


def read_after(request: Request) -> int:
    """The last event that the client has: ``Last-Event-ID``, else ``?after=``, else 0."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not _SEQ.fullmatch(given):
        raise InvalidRequestError(f"{given[:32]!r} is not the id of an event", field="after")
    return int(given)


def negotiate(request: Request, offered: Sequence[str]) -> str:
    """The media type of the answer: the best of ``Accept`` that is offered, the first by default."""
    accept = request.headers.get("accept", "*/*")
    if accept in offered:
        return accept
    best, best_quality = None, 0.0
    for media, quality in _ranges(accept):
        match = next((one for one in offered if _covers(media, one)), None)
        if match is not None and quality > best_quality:
            best, best_quality = match, quality
    if best is None:
        raise NotAcceptableError(
            f"nothing here can be answered as {accept[:128]!r}; accept {', '.join(offered)}",
            field="Accept",
            limit=offered,
        )
    return best


ANY_KIND = (MEDIA_JSON, MEDIA_SSE, MEDIA_FRAMES)
STREAMS = (MEDIA_SSE, MEDIA_FRAMES)  # what tells of events as they happen
WHOLE = (MEDIA_JSON, MEDIA_FRAMES)  # what tells how a call ended, at once


def _ranges(accept: str) -> list[tuple[str, float]]:
    ranges = []
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        ranges.append((media, quality))
    return ranges


def _covers(pattern: str, media: str) -> bool:
    kind, _, _ = media.partition("/")
    return pattern in ("*/*", f"{kind}/*", media)


def _seconds(value: str, field: str) -> float:
    if not _WAIT.fullmatch(value):
        raise InvalidRequestError(f"wait: {value[:32]!r} is not a number of seconds", field=field)
    return float(value)
