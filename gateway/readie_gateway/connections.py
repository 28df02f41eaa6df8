"""The client at the other end of a request that waits: is it still there?"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from starlette.types import Receive


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody left to answer."""


class ClientConnection:
    """Notices that a client has gone, once `listen` was called. A context manager: owns its task.

    Only for requests whose body has been read.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def listening(self) -> bool:
        return self._task is not None

    def listen(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the client goes, at once if it has gone already. Once is enough."""
        if self._task is None:
            self._task = asyncio.create_task(self._until_gone(then), name="client-connection")

    async def _until_gone(self, then: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        then()
