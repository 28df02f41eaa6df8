"""What can go wrong between a server and what it keeps elsewhere.

InfraError
├── StoreUnavailableError      Redis cannot be reached, or refuses to do its part
├── QueueFullError             the token's backlog is at its limit; try again later
├── IdempotencyConflictError   the key was used for another body
├── SessionError
│   ├── SessionUnknownError    there is no such session, or it is another token's
│   ├── SessionEndedError      the session is over; says why
│   └── SessionBusyError       too many calls wait in it, or one that would not wait
├── BlobError
│   ├── BlobKeyError           not a key: it could climb out of its folder
│   ├── BlobMissingError       no blob of that key
│   └── BlobUnavailableError   the blob store cannot be read or written
├── SealError                  sealed secrets cannot be opened with this key
└── SettingsError              a setting is missing or malformed; names it
"""


class InfraError(Exception):
    """The root of this tree."""


class StoreUnavailableError(InfraError):
    """Redis did not do what was asked, through no fault of the call; the cause is chained.

    ``reason`` is ``"unreachable"``, ``"timeout"``, ``"memory_full"``, ``"read_only"``,
    ``"loading"`` or ``"refused"``. Whether the step happened is unknown for the first two; every
    step of the store may be repeated.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"the call store is unavailable ({reason}): {detail}")
        self.reason = reason


class QueueFullError(InfraError):
    """The token has as many queued calls for this flavor as it may. ``retry_after`` in seconds."""

    def __init__(self, limit: int, retry_after: float) -> None:
        super().__init__(f"{limit} calls are queued already, which is the limit")
        self.limit = limit
        self.retry_after = retry_after


class IdempotencyConflictError(InfraError):
    """``key`` already stands for ``call_id``, whose body was another."""

    def __init__(self, key: str, call_id: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for {call_id} with another body")
        self.key = key
        self.call_id = call_id


class SessionError(InfraError):
    """A call cannot be added to ``session_id``."""

    def __init__(self, session_id: str, problem: str) -> None:
        super().__init__(f"session {session_id} {problem}")
        self.session_id = session_id


class SessionUnknownError(SessionError):
    """It was never opened, is another token's, or ended so long ago that nothing is left of it."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, "is not known")


class SessionEndedError(SessionError):
    """It is over, and what its calls left in memory is gone. ``reason`` says why."""

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(session_id, f"has ended: {reason}")
        self.reason = reason


class SessionBusyError(SessionError):
    """``waiting`` calls wait in it, which run one at a time. ``retry_after`` in seconds."""

    def __init__(self, session_id: str, waiting: int, retry_after: float) -> None:
        super().__init__(session_id, f"is busy: {waiting} calls wait in it")
        self.waiting = waiting
        self.retry_after = retry_after


class BlobError(InfraError):
    """A blob could not be had. ``key`` names it."""

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(f"blob {key}: {detail}")
        self.key = key


class BlobKeyError(BlobError):
    """The key is not made of safe parts, such as ``blobs/{call}/payload``."""


class BlobMissingError(BlobError):
    """There is no blob of that key (any more)."""


class BlobUnavailableError(BlobError):
    """The blob store could not be read or written; the cause is chained."""


class SealError(InfraError):
    """The key is another one, or what was sealed has been changed."""


class SettingsError(InfraError):
    """Settings are missing or malformed; the message names each and what it expects."""
