"""Everything the gateway refuses, as exceptions. `problems` turns them into responses, once.

RefusedError                     status, code, detail; field, limit, headers where they help
├── UnauthenticatedError         401
├── NotFoundError                404
├── NotAcceptableError           406
├── UploadTimeoutError           408
├── ResultExpiredError           410
├── SessionExpiredError          410
├── TooLargeError                413 names the limit
├── UnsupportedMediaTypeError    415
├── InvalidRequestError          422 names the field
│   ├── UnknownCheckpointError
│   └── IncompatiblePythonError
├── SessionBusyError             429
├── TooManySessionsError         429
└── NoWorkerError                503
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from readie_wire.http import ProblemCode


class RefusedError(Exception):
    """A request that gets a problem and no call. ``detail`` says what is wrong and the remedy.

    ``field`` is the dotted place in what was sent (``options.memory``); ``limit`` the number or
    the names that would have been accepted.
    """

    status: ClassVar[int] = 500
    code: ClassVar[ProblemCode] = ProblemCode.INTERNAL

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        limit: int | float | str | Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.limit = limit
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


class UnauthenticatedError(RefusedError):
    """No token, or one that is not in the token file."""

    status = 401
    code = ProblemCode.UNAUTHENTICATED

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="readie"'})


class NotFoundError(RefusedError):
    """Nothing of that name is here, or it belongs to another token."""

    status = 404
    code = ProblemCode.NOT_FOUND


class NotAcceptableError(RefusedError):
    """``Accept`` names no media type that this route can answer with."""

    status = 406
    code = ProblemCode.NOT_ACCEPTABLE


class UploadTimeoutError(RefusedError):
    """The client stopped sending in the middle of a body."""

    status = 408
    code = ProblemCode.INVALID_REQUEST


class ResultExpiredError(RefusedError):
    """The call has existed; its record is gone."""

    status = 410
    code = ProblemCode.RESULT_EXPIRED


class SessionExpiredError(RefusedError):
    """The session is over, and what its calls left in memory is gone."""

    status = 410
    code = ProblemCode.SESSION_EXPIRED


class SessionBusyError(RefusedError):
    """Other calls of the session come first, for longer than this one would wait."""

    status = 429
    code = ProblemCode.SESSION_BUSY


class TooManySessionsError(RefusedError):
    """No more sessions may be open at a time."""

    status = 429
    code = ProblemCode.QUEUE_FULL


class TooLargeError(RefusedError):
    """A body or one of its parts is over a limit, which ``limit`` states in bytes."""

    status = 413
    code = ProblemCode.TOO_LARGE


class UnsupportedMediaTypeError(RefusedError):
    """``Content-Type`` is none of those that this route reads."""

    status = 415
    code = ProblemCode.UNSUPPORTED_MEDIA_TYPE


class InvalidRequestError(RefusedError):
    """The request can be read and makes no sense; ``field`` says where."""

    status = 422
    code = ProblemCode.INVALID_REQUEST


class UnknownCheckpointError(InvalidRequestError):
    """A pinned checkpoint that no live worker of the flavor can restore."""

    code = ProblemCode.UNKNOWN_CHECKPOINT


class IncompatiblePythonError(InvalidRequestError):
    """A pickled call of a Python minor version that no live worker runs."""

    code = ProblemCode.INCOMPATIBLE_PYTHON


class NoWorkerError(RefusedError):
    """No worker can take the call, or none did in time."""

    status = 503
    code = ProblemCode.NO_WORKER


class NoSpaceError(RefusedError):
    """The gateway cannot keep an upload while it arrives."""

    status = 503
    code = ProblemCode.STORE_UNAVAILABLE
