"""What the service refuses, as errors: one table from its codes to the classes of `readie._errors`."""

import json
from collections.abc import Mapping
from typing import Any

from readie._errors import (
    ClusterUnavailableError,
    IncompatiblePythonError,
    InvalidRequestError,
    PermissionDeniedError,
    ReadieError,
    ResourceExhaustedError,
    ResultExpiredError,
    SessionExpiredError,
    TransportError,
)
from readie._exchange import Broken, Head
from readie_wire.http import MEDIA_JSON, MEDIA_PROBLEM, ProblemCode

_CLASSES: Mapping[str, type[ReadieError]] = {
    ProblemCode.UNAUTHENTICATED: PermissionDeniedError,
    ProblemCode.FORBIDDEN: PermissionDeniedError,
    ProblemCode.INCOMPATIBLE_PYTHON: IncompatiblePythonError,
    ProblemCode.RESULT_EXPIRED: ResultExpiredError,
    ProblemCode.SESSION_EXPIRED: SessionExpiredError,
    ProblemCode.QUEUE_FULL: ResourceExhaustedError,
    ProblemCode.SESSION_BUSY: ResourceExhaustedError,
    ProblemCode.NO_WORKER: ClusterUnavailableError,
    ProblemCode.STORE_UNAVAILABLE: ClusterUnavailableError,
    ProblemCode.INTERNAL: TransportError,
}
# The service, or what stands before it, may be well again in a moment; the key makes it safe.
_PASSING = frozenset({ProblemCode.STORE_UNAVAILABLE, ProblemCode.INTERNAL})
_GATEWAY_STATUSES = frozenset({502, 503, 504})


def problem_of(head: Head, body: bytes) -> ReadieError:
    """The error for a refusal. Raises `Broken` for one that is worth another try."""
    value = _parsed(head, body)
    if value is None:
        if head.status in _GATEWAY_STATUSES:
            raise Broken(f"the service is not there: status {head.status}")
        return TransportError(
            f"status {head.status} and no explanation: is this a Readie service? "
            f"({body[:200].decode('utf-8', 'replace')})"
        )
    code = str(value.get("code", ""))
    detail = str(value.get("detail") or value.get("title") or f"status {head.status}")
    if code in _PASSING:
        raise Broken(detail)
    if code == ProblemCode.UNAUTHENTICATED:
        detail += " (the SDK takes it from READIE_AUTH_TOKEN or readie.configure(auth_token=…))"
    error = _CLASSES.get(code, InvalidRequestError)(detail)
    if isinstance(error, TransportError):
        error.code = code
    if isinstance(error, InvalidRequestError):
        error.field = str(value.get("field") or "")
    if isinstance(error, ResourceExhaustedError):
        error.retry_after = _seconds(head.headers.get("retry-after"))
    return error


def _parsed(head: Head, body: bytes) -> dict[str, Any] | None:
    if head.media_type not in {MEDIA_PROBLEM, MEDIA_JSON}:
        return None
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
