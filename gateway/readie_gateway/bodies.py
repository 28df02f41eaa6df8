"""What a client sends, read with its limits checked before anything is buffered."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from readie_gateway.errors import (
    InvalidRequestError,
    TooLargeError,
    UnsupportedMediaTypeError,
    UploadTimeoutError,
)
from readie_gateway.json_text import parse
from readie_gateway.options import invalid_field
from readie_gateway.payloads import Payload
from readie_wire.envelope import CallHeader, CallKind, InvalidEnvelopeError
from readie_wire.extracting import Extraction, extract_imports
from readie_wire.framing import (
    MAX_HEADER_BYTES,
    Decoder,
    FrameType,
    MessageTooLargeError,
    ProtocolError,
)
from readie_wire.http import MEDIA_CALL, MEDIA_JSON
from readie_wire.versions import UnsupportedVersionError

# JSON is parsed whole on the event loop; a call with more data belongs into a framed body.
JSON_LIMIT_BYTES = 16 << 20
IDLE_S = 30.0  # a client that sends nothing for this long in the middle of a body has hung up
NAME_LENGTH = 512  # characters of a function's name that are kept: it is shown, never executed
# Frame headers on top of the payload: one for every KiB is more than any writer needs.
FRAMING_SHARE = 1024

# Parsing holds the event loop: about 0.1 s for the longest source that is looked into. A longer one
# runs all the same, its imports unknown to pricing.
EXTRACTED_CHARACTERS = 100_000
REMEMBERED_CHARACTERS = 16_000  # the same short sources come again and again
REMEMBERED_SOURCES = 256

_PYTHON = re.compile(r"\d{1,3}\.\d{1,3}(\.[0-9a-z.+]{1,32})?")


class CallBody(BaseModel):
    """A call as JSON: either ``source`` with an ``entrypoint``, or a ``function`` to import."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: str | None = Field(None, description="Python source; runs as a module.")
    entrypoint: str | None = Field(
        None,
        pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$",
        max_length=NAME_LENGTH,
        description="The function of the source to call. Without one the value is `result`.",
    )
    function: str | None = Field(
        None,
        pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$",
        max_length=NAME_LENGTH,
        description='An importable function, "package.module:name".',
    )
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """A call as it was sent. ``body_hash`` is of the whole body, for idempotency keys."""

    header: CallHeader
    payload: Payload
    body_hash: str


async def read_submission(request: Request, payload: Payload, payload_limit: int) -> Submission:
    """Read a call from either kind of body into ``payload``. Limits in bytes.

    Raises `TooLargeError`, `UnsupportedMediaTypeError`, `InvalidRequestError`,
    `UploadTimeoutError`.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == MEDIA_CALL:
        return await _read_framed(request, payload, payload_limit)
    if media == MEDIA_JSON:
        body = await read_json_bytes(request, min(payload_limit, JSON_LIMIT_BYTES))
        header, data = parse_call(body)
        payload.write(data)
        return Submission(header, payload, hashlib.sha256(body).hexdigest())
    raise UnsupportedMediaTypeError(
        f"the body is {media or 'of no stated type'}; send {MEDIA_JSON} or {MEDIA_CALL}",
        field="Content-Type",
        limit=[MEDIA_JSON, MEDIA_CALL],
    )


async def read_json_bytes(request: Request, limit: int = JSON_LIMIT_BYTES) -> bytes:
    """The bytes of a JSON body."""
    pieces: list[bytes] = []
    await _receive(request, limit, limit, pieces.append)
    return b"".join(pieces)


def parse_call(body: bytes) -> tuple[CallHeader, bytes]:
    """The header of a JSON call, and its payload for the executor."""
    call = _validated(parse_json(body))
    if call.source is not None and call.function is None:
        return _source_call(call, call.source)
    if call.function is not None and call.source is None:
        return _function_call(call, call.function)
    raise InvalidRequestError(
        'the body must have either "source" (with an "entrypoint") or "function"',
        field="function" if call.source is None else "source",
    )


def _source_call(call: CallBody, source: str) -> tuple[CallHeader, bytes]:
    header = CallHeader(
        kind=CallKind.SOURCE,
        function=call.entrypoint or "<source>",
        imports=imports_of_source(source),
        options=call.options,
    )
    given = {"source": source, "entrypoint": call.entrypoint}
    return header, _payload(given, call)


def _function_call(call: CallBody, function: str) -> tuple[CallHeader, bytes]:
    if call.entrypoint is not None:
        raise InvalidRequestError('"entrypoint" belongs to "source"', field="entrypoint")
    header = CallHeader(
        kind=CallKind.FUNCTION,
        function=function,
        imports=(function.partition(":")[0],),
        options=call.options,
    )
    return header, _payload({"function": function}, call)


def _payload(given: Mapping[str, Any], call: CallBody) -> bytes:
    value = {**given, "args": call.args, "kwargs": call.kwargs}
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def parse_json(body: bytes) -> dict[str, Any]:
    """The object that a body holds. Raises `InvalidRequestError`."""
    try:
        value = parse(body)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return value


def _validated(value: Mapping[str, Any]) -> CallBody:
    try:
        return CallBody.model_validate(value)
    except ValidationError as error:
        raise invalid_field(error, CallBody) from error


def imports_of_source(source: str) -> tuple[str, ...]:
    if len(source) <= REMEMBERED_CHARACTERS:
        return _remembered_imports(source)
    return extraction_of_source(source).needs


def extraction_of_source(source: str) -> Extraction:
    """What a source imports; nothing for one that is too long to be looked into."""
    return extract_imports(source) if len(source) <= EXTRACTED_CHARACTERS else Extraction()


@lru_cache(maxsize=REMEMBERED_SOURCES)
def _remembered_imports(source: str) -> tuple[str, ...]:
    return extract_imports(source).needs


async def _read_framed(request: Request, payload: Payload, payload_limit: int) -> Submission:
    digest = hashlib.sha256()
    decoder = Decoder(payload_limit, on_body=payload.write)
    messages = []

    def take(piece: bytes) -> None:
        digest.update(piece)
        messages.extend(decoder.feed(piece))
        if len(messages) > 1:
            raise ProtocolError("there is more than one message")

    most = payload_limit + payload_limit // FRAMING_SHARE + MAX_HEADER_BYTES
    try:
        await _receive(request, most, payload_limit, take)
        decoder.close()
        if not messages or messages[0].type is not FrameType.CALL:
            raise ProtocolError("there is no CALL message")
        header = _checked(CallHeader.from_json(messages[0].header))
    except MessageTooLargeError as error:
        raise TooLargeError(f"the call is too large: {error}", limit=error.limit) from error
    except InvalidEnvelopeError as error:
        raise InvalidRequestError(str(error), field=error.field) from error
    except UnsupportedVersionError as error:
        raise InvalidRequestError(
            str(error), field="v", limit=[str(number) for number in sorted(error.readable)]
        ) from error
    except ProtocolError as error:
        raise InvalidRequestError(f"the body is not a framed call: {error}") from error
    return Submission(header, payload, digest.hexdigest())


def _checked(header: CallHeader) -> CallHeader:
    """What is stored of a caller's header is bounded, and text that any store can hold."""
    if header.kind is not CallKind.PICKLE:
        raise InvalidRequestError(
            f"a framed body carries a pickle, not {header.kind}; send that as {MEDIA_JSON}",
            field="kind",
            limit=[CallKind.PICKLE],
        )
    if header.python and not _PYTHON.fullmatch(header.python):
        raise InvalidRequestError(
            f'python: {header.python[:32]!r} is not a version such as "3.11"', field="python"
        )
    name = header.function[:NAME_LENGTH].encode("utf-8", "replace").decode("utf-8")
    return replace(header, function=name)


async def _receive(
    request: Request, most: int, named_limit: int, take: Callable[[bytes], None]
) -> None:
    """Hand the body to ``take`` as it comes; refuse it at ``most`` bytes, naming ``named_limit``."""
    announced = request.headers.get("content-length", "")
    received = int(announced) if announced.isdecimal() else 0
    if received > most:
        raise _too_large(received, named_limit)
    received = 0
    try:
        async with asyncio.timeout(IDLE_S) as idle:
            async for piece in request.stream():
                received += len(piece)
                if received > most:
                    raise _too_large(received, named_limit)
                take(piece)
                idle.reschedule(asyncio.get_running_loop().time() + IDLE_S)
    except TimeoutError as error:
        raise UploadTimeoutError(
            f"nothing of the body came for {IDLE_S:g} s; send it again"
        ) from error


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        f"the body has {size} bytes or more, the limit for a call is {limit}",
        field="body",
        limit=limit,
    )
