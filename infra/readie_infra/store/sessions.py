"""Sessions: calls that share a sandbox, one after another. They end once, and leave a tombstone."""

from readie_infra.store import endings
from readie_infra.store.reading import outcome_text, pairs
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import DEFAULT_SESSION_IDLE_S, Limits
from readie_wire.records import SessionRecord


class Sessions:
    _steps: Steps
    _limits: Limits

    async def open_session(
        self, record: SessionRecord, idle_s: float = DEFAULT_SESSION_IDLE_S
    ) -> bool:
        """Make a session. `False`: there are as many as there may be. May be repeated.

        Without a call it ends after ``idle_s`` seconds; the worker of its first call has its own.
        """
        fields: list[str] = []
        for name, value in record.new_fields().items():
            fields += (name, value)
        limits = (milliseconds(idle_s), self._limits.sessions)
        return bool(await self._steps.run("open_session", record.session_id, *limits, *fields))

    async def read_session(self, session_id: str) -> SessionRecord | None:
        """The session, also when it has ended; `None` when it is not known."""
        fields, waiting = await self._steps.run("read_session", session_id)
        return SessionRecord.from_fields(session_id, pairs(fields), waiting) if fields else None

    async def sessions(self, token: str) -> list[SessionRecord]:
        """The open sessions of a token, the oldest first."""
        found = [
            SessionRecord.from_fields(session.decode(), pairs(fields), waiting)
            for session, fields, waiting in await self._steps.run("list_sessions", token)
        ]
        return sorted(found, key=lambda record: (record.opened_ms, record.session_id))

    async def end_session(self, session_id: str, reason: str, *, worker: str = "") -> bool:
        """End a session: calls that wait in it fail, one that runs is cancelled.

        With ``worker``, only if the session is that worker's. `False`: it was over already.
        """
        return bool(
            await self._steps.run(
                "end_session",
                session_id,
                worker,
                reason,
                outcome_text(endings.session_ended(reason)),
                milliseconds(DEFAULT_RESULT_TTL_S),
                milliseconds(self._limits.cancel_grace_s),
            )
        )
