"""From a submission to a queued call: validate, place, store. One round trip to Redis."""

import hashlib
from dataclasses import dataclass, replace

from starlette.requests import Request

from readie_gateway.bodies import Submission, read_submission
from readie_gateway.errors import InvalidRequestError, TooLargeError
from readie_gateway.options import CallOptions
from readie_gateway.payloads import Payload
from readie_gateway.placement import Placement, place
from readie_gateway.services import Services
from readie_infra.blobs import payload_key
from readie_wire.http import IDEMPOTENCY_KEY, INLINE_LIMIT_BYTES
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord, Choice

KEY_LENGTH = 255  # characters of an Idempotency-Key


@dataclass(frozen=True, slots=True)
class Accepted:
    """A queued call. ``created`` is false for one that an earlier request with the key made.

    ``record`` is what was stored, without its payload; `None` for such an earlier call.
    """

    call_id: str
    choice: Choice
    created: bool
    record: CallRecord | None = None


async def submit(
    services: Services, request: Request, *, call_id: str, waited: bool, subscribe: bool
) -> Accepted:
    """Read the call in ``request`` and queue it as ``call_id``.

    ``waited``: it ends with its client; ``subscribe``: ring this gateway. Raises what `place`,
    `read_submission` and `CallStore.enqueue` raise.
    """
    with Payload() as payload:
        submission = await read_submission(request, payload, services.limits.payload)
        options = await services.sessions.options_in_session(
            submission.header.options, request.scope["token"]
        )
        placement = place(
            submission.header, options, services.fleet.now, services.catalogues.loaded
        )
        blob = await _store_payload(services, call_id, payload)
        record = _record(services, request, call_id, submission, options, placement, waited, blob)
        try:
            enqueued = await services.store.enqueue(
                record,
                idempotency=_idempotency(request, submission),
                queue_timeout=options.queue_timeout,
                gateway=services.board.boot if subscribe else None,
                queue_limit=services.limits.queue,
            )
        except BaseException:
            await _drop_payload(services, blob)
            raise
        if enqueued.created:
            kind = "checkpoint" if placement.choice.checkpoint else "cold"
            services.metrics.calls.labels(placement.flavor, kind).inc()
            if services.imports is not None:
                services.imports.note(submission.header)
        else:
            await _drop_payload(services, blob)
    # Held as long as the request waits; a payload would be memory that nobody needs any more.
    kept = replace(record, payload=b"") if enqueued.created else None
    return Accepted(enqueued.call_id, placement.choice, enqueued.created, kept)


def _record(
    services: Services,
    request: Request,
    call_id: str,
    submission: Submission,
    options: CallOptions,
    placement: Placement,
    waited: bool,
    blob: str,
) -> CallRecord:
    header = submission.header
    return CallRecord(
        call_id=call_id,
        state=State.QUEUED,
        token=request.scope["token"],
        flavor=placement.flavor,
        kind=header.kind,
        function=header.function,
        python=header.python,
        imports=header.imports,
        needs=placement.needs,
        choice=placement.choice,
        options={**options.model_dump(), "secrets": sorted(options.secrets)},
        exposed=services.limits.exposed,
        waited=waited,
        payload=b"" if blob else submission.payload.data,
        payload_blob=blob,
        session=options.session or "",
        sealed=_sealed(services, options, request.scope["token"]),
        modules=header.modules,
    )


def _sealed(services: Services, options: CallOptions, token: str) -> str:
    """Secrets as they may be stored. Raises `InvalidRequestError` where there is no key."""
    if not options.secrets:
        return ""
    if services.seal is None:
        raise InvalidRequestError(
            "options.secrets: this service has no key to seal secrets with; "
            "set READIE_SEAL_KEY_FILE on gateways and workers",
            field="options.secrets",
        )
    return services.seal.close(options.secrets, token)


def _idempotency(request: Request, submission: Submission) -> tuple[str, str] | None:
    given = request.headers.get(IDEMPOTENCY_KEY)
    if given is None:
        return None
    if not 0 < len(given) <= KEY_LENGTH:
        raise InvalidRequestError(
            f"an {IDEMPOTENCY_KEY} has 1 to {KEY_LENGTH} characters",
            field=IDEMPOTENCY_KEY,
            limit=KEY_LENGTH,
        )
    # Callers choose keys freely; their digest is safe as a part of a Redis key.
    return hashlib.sha256(given.encode()).hexdigest(), submission.body_hash


async def _store_payload(services: Services, call_id: str, payload: Payload) -> str:
    if payload.size <= INLINE_LIMIT_BYTES:
        return ""
    if services.blobs is None:
        raise TooLargeError(
            f"the call has {payload.size} bytes; without a blob store (READIE_BLOB_URL) "
            f"the limit is {INLINE_LIMIT_BYTES}",
            field="body",
            limit=INLINE_LIMIT_BYTES,
        )
    key = payload_key(call_id)
    await services.blobs.put(key, payload.path or payload.data)
    return key


async def _drop_payload(services: Services, blob: str) -> None:
    if blob and services.blobs is not None:
        await services.blobs.delete(blob)
