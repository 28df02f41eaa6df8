"""Calls and workers in Redis or Valkey: one class, one Lua file for each step it takes.

Every method raises `readie_infra.errors.StoreUnavailableError` when the server cannot do its part,
within seconds; every step may be repeated.
"""

from typing import TYPE_CHECKING

from readie_infra.store.announcing import Announcing
from readie_infra.store.dead import Dead
from readie_infra.store.holding import Holding
from readie_infra.store.pulses import Pulses
from readie_infra.store.reading import snapshot_at_end
from readie_infra.store.recording import Recording
from readie_infra.store.sessions import Sessions
from readie_infra.store.settling import Calm
from readie_infra.store.steps import Steps
from readie_infra.store.submitting import Submitting
from readie_infra.store.sweeping import Sweeping
from readie_infra.store.values import (
    DEFAULT_SESSION_IDLE_S,
    Cursor,
    DeadLetter,
    Ending,
    Enqueued,
    Event,
    Health,
    Hold,
    Limits,
    Offer,
    Order,
    Snapshot,
    StoredEvent,
    Swept,
    Unwanted,
    Wakeup,
)
from readie_infra.store.watching import Watching
from readie_wire.keys import Keys

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = [
    "DEFAULT_SESSION_IDLE_S",
    "CallStore",
    "Cursor",
    "DeadLetter",
    "Ending",
    "Enqueued",
    "Event",
    "Health",
    "Hold",
    "Limits",
    "Offer",
    "Order",
    "Snapshot",
    "StoredEvent",
    "Swept",
    "Unwanted",
    "Wakeup",
    "snapshot_at_end",
]


class CallStore(Submitting, Holding, Watching, Sweeping, Sessions, Dead, Announcing, Recording):
    """The store of one installation: ``client`` from `readie_infra.connecting.connect`."""

    def __init__(
        self, client: "Redis", keys: Keys | None = None, limits: Limits | None = None
    ) -> None:
        self._keys = keys or Keys()
        self._limits = limits or Limits()
        self._steps = Steps(client, self._keys.prefix)
        self._open_tickets = {}
        self._pulses = Pulses(self._limits.silence_s)
        self._calm = Calm(self._limits.settle_s)
        self._rebuild_from = 0

    async def close(self) -> None:
        """Close the connections; what waits for an answer is told that the store is unavailable."""
        await self._steps.close()
