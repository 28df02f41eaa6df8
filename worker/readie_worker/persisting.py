"""Repeats a step of the store or the blobs while it cannot be had, for a bounded time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from readie_infra.errors import BlobUnavailableError, StoreUnavailableError

FIRST_PAUSE_S = 0.1  # doubled after each try
LONGEST_PAUSE_S = 2.0

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


async def persist(what: str, step: Callable[[], Awaitable[T]], patience: float) -> T:
    """The answer of ``step``, which may be tried again and again; every step of the store may.

    Raises the last `StoreUnavailableError` or `BlobUnavailableError` once ``patience`` seconds
    have passed.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await step()
        except (StoreUnavailableError, BlobUnavailableError) as error:
            if loop.time() + pause > give_up_at:
                raise
            log.warning("trying again", what=what, reason=str(error), pause=pause)
        await asyncio.sleep(jittered(pause))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def jittered(pause: float) -> float:
    """Not all workers of a fleet come back at the same instant."""
    return pause * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, protects nothing
