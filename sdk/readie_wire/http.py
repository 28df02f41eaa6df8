"""Names that HTTP clients and the gateway share: paths, media types, headers, problem codes."""

from enum import StrEnum

DEFAULT_PORT = 8777
API_PREFIX = "/v1"

MEDIA_JSON = "application/json"
MEDIA_PROBLEM = "application/problem+json"
MEDIA_CALL = "application/vnd.readie.call"
MEDIA_FRAMES = "application/vnd.readie.frames"
MEDIA_SSE = "text/event-stream"
MEDIA_NDJSON = "application/x-ndjson"

IDEMPOTENCY_KEY = "Idempotency-Key"
PREFER = "Prefer"

WAIT_WINDOW_S = 60.0  # a waited call longer than this is answered 202, before proxies lose patience
INLINE_LIMIT_BYTES = 256 * 1024  # larger payloads and results go to the blob store
PAYLOAD_LIMIT_BYTES = 1 << 30


class ProblemCode(StrEnum):
    """``code`` of a refusal: stable, one per remedy."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INVALID_REQUEST = "invalid_request"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    INCOMPATIBLE_PYTHON = "incompatible_python"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    NOT_ACCEPTABLE = "not_acceptable"
    TOO_LARGE = "too_large"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    RESULT_EXPIRED = "result_expired"
    SESSION_EXPIRED = "session_expired"
    SESSION_BUSY = "session_busy"
    QUEUE_FULL = "queue_full"
    NO_WORKER = "no_worker"
    STORE_UNAVAILABLE = "store_unavailable"
    INTERNAL = "internal"
