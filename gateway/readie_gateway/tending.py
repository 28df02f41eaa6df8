"""Work beside the requests, with an owner: a side task that fails is logged and begun again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from readie_infra.errors import StoreUnavailableError

log = logging.getLogger(__name__)

RESTART_S = 1.0


class SideTasks:
    """Runs coroutines that never return; a context manager that ends them with its block."""

    def __init__(self, **tasks: Callable[[], Awaitable[None]]) -> None:
        self._work = tasks
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(_tend(name, work), name=name) for name, work in self._work.items()
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _tend(name: str, work: Callable[[], Awaitable[None]]) -> None:
    away = False
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            await work()
        except StoreUnavailableError as error:
            if not away or clock() - began > RESTART_S * 10:
                log.warning("%s pauses: %s", name, error)
            away = True
        except Exception:
            log.exception("%s failed and is begun again", name)
        await asyncio.sleep(RESTART_S)
