"""Blocking work beside an event loop, for which a process that ends does not wait."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


async def aside(work: Callable[..., _T], *arguments: Any) -> _T:
    """What ``work`` answers or raises, from a daemon thread of its own.

    Unlike `asyncio.to_thread`, whose threads are joined at the end of the process: a bucket may be
    away for minutes. So it must be work that can be cut off anywhere.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(settled: Callable[[Any], None], value: object) -> None:
        if not done.done():  # nobody waits for it any more
            settled(value)

    def run() -> None:
        outcome: tuple[Callable[[Any], None], object]
        try:
            outcome = (done.set_result, work(*arguments))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            outcome = (done.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await done
