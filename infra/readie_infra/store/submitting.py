"""The gateway's side of a call's life: enqueue, cancel, list."""

from readie_infra.errors import (
    IdempotencyConflictError,
    QueueFullError,
    SessionBusyError,
    SessionEndedError,
    SessionUnknownError,
)
from readie_infra.store import endings
from readie_infra.store.reading import (
    LIST_FIELDS,
    compact,
    named,
    outcome_text,
    read_record,
)
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.values import Enqueued, Limits
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord, reruns_allowed

RETRY_AFTER_S = 1.0  # a full queue of short calls has room again by then
DEFAULT_TIMEOUT_S = 3_600.0
DEFAULT_RESULT_TTL_S = 3_600.0
_CREATED, _KNOWN, _CONFLICT, _FULL = 1, 0, -1, -2
_SESSION_UNKNOWN, _SESSION_ENDED = -3, -4


class Submitting:
    _steps: Steps
    _keys: Keys
    _limits: Limits

    async def enqueue(
        self,
        record: CallRecord,
        *,
        idempotency: tuple[str, str] | None,
        queue_timeout: float,
        gateway: str | None,
        queue_limit: int,
    ) -> Enqueued:
        """Accept a call: record, events, queue, bell and subscription in one atomic step.

        ``idempotency`` is a key and a hash of the body, ``queue_timeout`` seconds until a call
        that nobody took expires, ``gateway`` the boot id to ring (also for a known call),
        ``queue_limit`` the most queued calls of one token and flavor. Of ``record.options``,
        ``timeout``, ``memory`` (bytes) and ``result_ttl`` matter here.

        Raises `IdempotencyConflictError`, `QueueFullError`, a `SessionError` for a call of a session,
        `StoreUnavailableError` (nothing is stored when its reason is ``memory_full``). May be
        repeated with the same record.
        """
        key, body_hash = idempotency or ("", "")
        options = record.options
        timeout = float(options.get("timeout") or DEFAULT_TIMEOUT_S)
        result_ttl = float(options.get("result_ttl") or DEFAULT_RESULT_TTL_S)
        # Outlives the call however long it is queued and runs; its end sets the final TTL.
        runs = 1 + reruns_allowed(options)
        key_ttl = queue_timeout + runs * (self._limits.lease_s * self._limits.max_leases + timeout)
        accepted = compact({"call_id": record.call_id, "choice": record.choice.to_json()})
        fields = [word for field in record.new_fields().items() for word in field]
        code, detail = await self._steps.run(
            "enqueue",
            record.call_id,
            record.token,
            record.flavor,
            key,
            body_hash,
            gateway or "",
            queue_limit,
            milliseconds(queue_timeout),
            milliseconds(timeout),
            milliseconds(key_ttl + result_ttl),
            int(options.get("memory") or 0),
            "1" if record.exposed else "0",
            accepted,
            record.session,
            self._limits.session_line,
            *fields,
        )
        if code in (_CREATED, _KNOWN):
            return Enqueued(detail.decode(), created=code == _CREATED)
        if code == _FULL:
            raise QueueFullError(queue_limit, RETRY_AFTER_S)
        if code == _CONFLICT:
            raise IdempotencyConflictError(key, detail.decode())
        if code == _SESSION_UNKNOWN:
            raise SessionUnknownError(record.session)
        if code == _SESSION_ENDED:
            raise SessionEndedError(record.session, detail.decode())
        raise SessionBusyError(record.session, detail, RETRY_AFTER_S)

    async def cancel(self, call_id: str, reason: str) -> State | None:
        """End a call that has not started, or order the worker of a running one to end it.

        Answers the state after that: ``cancelled``, ``running`` (it ends within the grace), an
        earlier terminal state, or `None` for an unknown call.
        """
        order = compact({"type": "cancel", "call": call_id, "reason": reason})
        state = await self._steps.run(
            "cancel",
            call_id,
            reason or "cancelled",
            outcome_text(endings.cancelled(reason)),
            milliseconds(DEFAULT_RESULT_TTL_S),
            milliseconds(self._limits.cancel_grace_s),
            order,
        )
        return None if state is None else State(state.decode())

    async def call_of_key(self, token: str, key: str) -> str | None:
        """The call that an idempotency key of the token stands for, also when its record is gone."""
        known = await self._steps.ask("GET", self._keys.idempotency(token, key))
        return None if known is None else str(known.decode().partition(" ")[0])

    async def recent(self, token: str, limit: int = 100) -> list[CallRecord]:
        """The latest calls of a token, newest first, without payloads and results."""
        found = await self._steps.run("recent", token, limit, *LIST_FIELDS)
        return [read_record(call.decode(), named(LIST_FIELDS, values)) for call, values in found]
