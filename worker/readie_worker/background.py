"""Work that nobody waits for, with an owner that notices when it fails and ends it at the end."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.stdlib.get_logger(__name__)


class Background:
    """Runs coroutines off the caller's path: destroying sandboxes, refilling the pool.

    A failure is logged with what the work was, and disturbs nothing else.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._watched(what, work), name=what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace: float) -> None:
        """Wait at most ``grace`` seconds for what is under way, then cancel the rest."""
        tasks = set(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _watched(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("background work failed", work=what)
