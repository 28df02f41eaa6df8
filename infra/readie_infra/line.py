"""One connection that every coroutine of a process shares.

Commands of one turn of the event loop leave in one write; answers come back in their order. That is
a tenth of the CPU time of a connection per command, and several times its throughput. How a
connection is made (address, TLS, password, database) stays with the client library.
"""

import asyncio
from collections import deque
from typing import Any

from redis import exceptions
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from readie_infra.connecting import ANSWER_TIMEOUT_S, retrying

MAX_PENDING = 10_000  # commands without an answer; a process has far fewer calls at once


class Line:
    """Asks one server, over a connection made when first needed and made anew when it breaks.

    A command whose answer was lost with the connection is repeated. Raises what the client library
    raises: `ConnectionError` after a few attempts, `TimeoutError` when answers are due and none
    came for ``timeout_s`` (all that wait fail together), `ResponseError`.
    """

    def __init__(self, pool: ConnectionPool, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._retry = retrying()
        self._connecting = asyncio.Lock()
        self._link: _Link | None = None
        self._closed = False
        self.connections = 0  # made so far: when it has grown, there was a time without one

    async def ask(self, *words: str | bytes | int) -> Any:
        """Send one command; its answer, with bytes for strings."""
        return await self._retry.call_with_retry(lambda: self._ask(words), _go_on)

    async def close(self) -> None:
        """Break the connection for good: what waits for an answer fails, as does what follows."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def _ask(self, words: tuple[str | bytes | int, ...]) -> Any:
        link = self._link
        if link is None or link.broken:
            link = await self._linked()
        return await link.send(words)

    async def _linked(self) -> "_Link":
        async with self._connecting:
            if self._closed:
                raise exceptions.RedisError("the line was closed")
            if self._link is not None and not self._link.broken:
                return self._link
            await self._drop()
            settings = {
                **self._pool.connection_kwargs,
                "socket_timeout": None,  # idle is no fault here; the link watches its answers
                "retry": Retry(NoBackoff(), 0),  # asking is retried as a whole
            }
            connection = self._pool.connection_class(**settings)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await connection.connect()  # type: ignore[no-untyped-call]
            except TimeoutError as error:
                raise exceptions.TimeoutError("the server accepts but does not answer") from error
            self._link = _Link(connection, self._timeout_s)
            self.connections += 1
            return self._link


class _Link:
    """One connection's life: until it breaks, each command sent gets its answer in turn."""

    def __init__(self, connection: AbstractConnection, timeout_s: float) -> None:
        self.broken: exceptions.RedisError | None = None
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0  # when the last answer came
        self._outgoing: list[bytes] = []
        self._pending: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._writing = False
        self._rest: asyncio.Task[None] | None = None
        self._reading = self._loop.create_task(self._read())

    async def send(self, words: tuple[str | bytes | int, ...]) -> Any:
        if self.broken is not None:
            raise self.broken
        if len(self._pending) >= MAX_PENDING:
            raise exceptions.ResponseError(f"{MAX_PENDING} commands wait for their answers")
        packed = self._connection.pack_command(*words)
        answer: asyncio.Future[Any] = self._loop.create_future()
        busy = bool(self._pending)
        now = self._loop.time()
        self._pending.append((now, answer))
        self._outgoing += packed
        if self._watch is None:
            self._watch = self._loop.call_at(now + self._timeout_s, self._look_at_oldest)
        if not self._writing:
            await self._write(gather=busy)
        return await answer

    async def close(self) -> None:
        self._break(exceptions.ConnectionError("the connection was closed"))
        tasks = [task for task in (self._reading, self._rest) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.disconnect(nowait=True)

    async def _write(self, *, gather: bool) -> None:
        """Send what is there; with ``gather``, after the other tasks of this turn had theirs."""
        self._writing = True
        try:
            if gather:
                await asyncio.sleep(0)
            while self._outgoing:
                packed, self._outgoing = self._outgoing, []
                await self._connection.send_packed_command(packed, check_health=False)
        except (exceptions.RedisError, OSError) as error:
            self._break(error)
        finally:
            self._writing = False
            if self._outgoing and self.broken is None:  # cancelled, with commands of others
                self._rest = self._loop.create_task(self._write(gather=False))

    async def _read(self) -> None:
        try:
            while True:
                try:
                    value = await self._connection.read_response(disconnect_on_error=False)
                except exceptions.ResponseError as error:
                    value = error
                self._heard = self._loop.time()
                _, answer = self._pending.popleft()
                if answer.done():
                    continue  # whoever asked was cancelled
                if isinstance(value, exceptions.ResponseError):
                    answer.set_exception(value)
                else:
                    answer.set_result(value)
        except (exceptions.RedisError, OSError) as error:
            self._break(error)

    def _look_at_oldest(self) -> None:
        """One timer runs while answers are awaited, not one for each command."""
        self._watch = None
        if not self._pending:
            return
        due = max(self._pending[0][0], self._heard) + self._timeout_s
        if due <= self._loop.time():
            self._break(exceptions.TimeoutError(f"no answer within {self._timeout_s:g} s"))
        else:
            self._watch = self._loop.call_at(due, self._look_at_oldest)

    def _break(self, error: Exception) -> None:
        """From now on nothing is sent; all that wait are told. The first reason stays."""
        if self.broken is None:
            if not isinstance(error, exceptions.RedisError):
                error = exceptions.ConnectionError(str(error))
            self.broken = error
            self._abort()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._pending:
            _, answer = self._pending.popleft()
            if not answer.done():
                answer.set_exception(error)

    def _abort(self) -> None:
        """Drop the socket with what is unsent: closing it would wait for a server that is silent."""
        writer = self._connection._writer
        if writer is not None:
            writer.transport.abort()


async def _go_on(_: Exception) -> None:
    """Nothing to put right before the next attempt: it makes a new connection."""
