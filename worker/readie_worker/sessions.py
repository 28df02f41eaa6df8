"""The sessions whose sandboxes are on this worker: kept between calls, let go when the session ends.

A session holds its memory as long as it lives here, and a slot only while a call of it runs. The store
decides whose turn it is and when a session ends; this is what the worker has of it.
"""

from dataclasses import dataclass

import structlog

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore
from readie_worker.background import Background
from readie_worker.capacity import Capacity, Grant
from readie_worker.persisting import persist
from readie_worker.starting import LiveSandbox, Starter

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class HeldSession:
    """``live`` is its sandbox, `None` before a call has started in one.

    ``over``: it does not go on here. ``calls`` counts those that are not all done here; the store has
    the next one taken as soon as it knows the end of the last. ``watched``: its death will be noticed.
    """

    session_id: str
    grant: Grant
    live: LiveSandbox | None = None
    over: bool = False
    calls: int = 0
    watched: bool = False


class Sessions:
    """What the worker holds of sessions. ``patience``: how long the end of one waits for the store."""

    def __init__(
        self,
        store: CallStore,
        starter: Starter,
        background: Background,
        capacity: Capacity,
        *,
        boot: str,
        patience: float,
    ) -> None:
        self._store = store
        self._starter = starter
        self._background = background
        self._capacity = capacity
        self._boot = boot
        self._patience = patience
        self._held: dict[str, HeldSession] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def ids(self) -> list[str]:
        return list(self._held)

    def ready(self, session_id: str) -> bool:
        """Whether its sandbox waits for a call, when its turn has come."""
        held = self._held.get(session_id)
        return held is not None and held.live is not None and not held.over

    def begin(self, session_id: str, memory: int) -> HeldSession:
        """A call of the session was taken: `rest` follows. The first one makes it hold memory."""
        held = self._held.get(session_id)
        if held is None:
            grant = self._capacity.reserve(memory)
            held = self._held[session_id] = HeldSession(session_id, grant)
        held.calls += 1
        return held

    def lose(self, session_id: str, memory: int) -> None:
        """A call was taken for a sandbox that is gone by now: it must not begin in another one."""
        self.begin(session_id, memory).over = True

    def rest(self, held: HeldSession) -> None:
        """The call is over: the session waits for the next one, or is let go."""
        held.calls -= 1
        if held.over and not held.calls:
            self._drop(held)
        elif held.live is not None and not held.watched:
            held.watched = True
            held.live.connection.closed.add_done_callback(lambda _: self._found_dead(held))

    def close(self, session_id: str) -> None:
        """An order: the session has ended."""
        held = self._held.get(session_id)
        if held is not None:
            held.over = True
            if not held.calls:
                self._drop(held)

    def close_all(self) -> None:
        """The worker stops: let go of every sandbox. Their sessions end when it signs off."""
        for held in list(self._held.values()):
            self._drop(held)

    def _drop(self, held: HeldSession) -> None:
        if self._held.pop(held.session_id, None) is not held:
            return
        self._capacity.free(held.grant)
        live, held.live = held.live, None
        if live is not None:
            self._starter.discard(live)

    def _found_dead(self, held: HeldSession) -> None:
        if self._held.get(held.session_id) is not held or held.calls:
            return  # let go already, or a call is in it and finds out by itself
        log.warning("the sandbox of an idle session has died", session=held.session_id)
        held.over = True
        self._drop(held)
        self._background.run("ending a session", self._report_dead(held.session_id))

    async def _report_dead(self, session_id: str) -> None:
        try:
            await persist(
                "ending a session",
                lambda: self._store.end_session(
                    session_id, "its sandbox ended between two calls", worker=self._boot
                ),
                self._patience,
            )
        except StoreUnavailableError:
            log.exception("the end of a session was not told", session=session_id)
