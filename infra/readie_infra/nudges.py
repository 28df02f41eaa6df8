"""A pause between two looks at a bucket that ends early when somebody has published."""

import asyncio

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore

OUTAGE_PAUSE_S = 1.0  # before the store is asked again


class Nudges:
    """Announcements as one process hears them. ``boot`` is its id; one pause at a time."""

    def __init__(self, store: CallStore, boot: str) -> None:
        self._store = store
        self._waiter = f"news of {boot}"  # a connection of its own: it waits all the time
        self._last_id = "0-0"

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until something is published; which. Without the store it just waits."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            try:
                latest = await self._store.news(self._waiter, self._last_id, left)
            except StoreUnavailableError:
                await asyncio.sleep(min(left, OUTAGE_PAUSE_S))
                continue
            if latest != self._last_id:
                self._last_id = latest
                return True
        return False
