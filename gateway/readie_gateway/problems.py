"""Problem documents (RFC 9457): the one place where an exception becomes a response."""

import logging
import math
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from readie_gateway.errors import RefusedError
from readie_gateway.json_text import dump
from readie_infra.errors import (
    BlobError,
    IdempotencyConflictError,
    QueueFullError,
    SessionBusyError,
    SessionEndedError,
    SessionUnknownError,
    StoreUnavailableError,
)
from readie_wire.http import MEDIA_PROBLEM, ProblemCode
from readie_wire.keys import InvalidIdError

log = logging.getLogger(__name__)

STORE_RETRY_AFTER_S = 1  # a store that restarts is usually back within seconds

_HTTP_CODES = {
    403: ProblemCode.FORBIDDEN,
    404: ProblemCode.NOT_FOUND,
    405: ProblemCode.METHOD_NOT_ALLOWED,
}


class Problem(BaseModel):
    """Why a request was refused. ``code`` is stable and there is one per remedy."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="A name for the kind of problem; `code` as a URN.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with this request, and the remedy.")
    code: ProblemCode
    field: str | None = Field(None, description="The dotted place in what was sent.")
    limit: int | float | str | list[str] | None = Field(
        None, description="What would have been accepted: a number, or the possible names."
    )


def problem_response(error: RefusedError) -> Response:
    """The response of a refusal."""
    return _respond(
        error.status,
        error.code,
        error.detail,
        headers=error.headers,
        field=error.field,
        limit=error.limit,
        **error.extra,
    )


async def on_refused(request: Request, error: RefusedError) -> Response:
    return problem_response(error)


async def on_store_unavailable(request: Request, error: StoreUnavailableError) -> Response:
    log.warning("%s", error)
    return _unavailable(f"the store that holds the calls cannot do its part now ({error.reason})")


async def on_blob_error(request: Request, error: BlobError) -> Response:
    log.warning("the blob store is unavailable: %s", error)
    return _unavailable("the store for large payloads and results cannot do its part now")


async def on_idempotency_conflict(request: Request, error: Exception) -> Response:
    return _respond(
        409,
        ProblemCode.IDEMPOTENCY_CONFLICT,
        "this Idempotency-Key was used with another body; use a new key for a new call",
        field="Idempotency-Key",
    )


async def on_queue_full(request: Request, error: QueueFullError) -> Response:
    seconds = max(1, math.ceil(error.retry_after))
    return _respond(
        429,
        ProblemCode.QUEUE_FULL,
        f"the queue is full; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
        limit=error.limit,
    )


async def on_session_unknown(request: Request, error: SessionUnknownError) -> Response:
    detail = f"there is no session {error.session_id}; open one with POST /v1/sessions"
    return _respond(404, ProblemCode.NOT_FOUND, detail, field="options.session")


async def on_session_ended(request: Request, error: SessionEndedError) -> Response:
    detail = f"{error}; open another one, and do again what prepares it"
    return _respond(410, ProblemCode.SESSION_EXPIRED, detail, field="options.session")


async def on_session_busy(request: Request, error: SessionBusyError) -> Response:
    seconds = max(1, math.ceil(error.retry_after))
    return _respond(
        429,
        ProblemCode.SESSION_BUSY,
        f"{error}, and its calls run one at a time; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
        field="options.session",
    )


async def on_invalid_id(request: Request, error: Exception) -> Response:
    return _respond(404, ProblemCode.NOT_FOUND, str(error))


async def on_http_exception(request: Request, error: HTTPException) -> Response:
    """What the router refuses by itself: no such path, no such method on it."""
    code = _HTTP_CODES.get(error.status_code, ProblemCode.INVALID_REQUEST)
    detail = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return _respond(error.status_code, code, detail, headers=error.headers)


async def on_client_disconnect(request: Request, error: ClientDisconnect) -> Response:
    """The client hung up in the middle of its body: there is nobody to read this."""
    return Response(status_code=400)


async def on_bug(request: Request, error: Exception) -> Response:
    """Anything else. The server logs the traceback; the client gets none of it."""
    return _respond(500, ProblemCode.INTERNAL, "the gateway failed; its log has the reason")


EXCEPTION_HANDLERS: dict[Any, Any] = {
    RefusedError: on_refused,
    StoreUnavailableError: on_store_unavailable,
    BlobError: on_blob_error,
    IdempotencyConflictError: on_idempotency_conflict,
    QueueFullError: on_queue_full,
    SessionUnknownError: on_session_unknown,
    SessionEndedError: on_session_ended,
    SessionBusyError: on_session_busy,
    InvalidIdError: on_invalid_id,
    HTTPException: on_http_exception,
    ClientDisconnect: on_client_disconnect,
    Exception: on_bug,
}


def _unavailable(detail: str) -> Response:
    return _respond(
        503,
        ProblemCode.STORE_UNAVAILABLE,
        f"{detail}; try again with the same Idempotency-Key",
        headers={"Retry-After": str(STORE_RETRY_AFTER_S)},
    )


def _respond(
    status: int, code: ProblemCode, detail: str, *, headers: Any = None, **members: Any
) -> Response:
    body = dump(_document(status, code, detail, **members))
    return Response(body, status, headers, media_type=MEDIA_PROBLEM)


def _document(status: int, code: ProblemCode, detail: str, **members: Any) -> dict[str, Any]:
    return {
        "type": f"urn:readie:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": str(code),
        "field": None,
        "limit": None,
        **members,
    }
