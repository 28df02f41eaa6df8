"""One connection that every coroutine of a process shares.

Commands of one turn of the event loop leave in one write; answers come back in their order. That is
a tenth of the CPU time of a connection per command, and several times its throughput. How a
connection is made (address, TLS, password, database) stays with the client library.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
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
        link = self._link
        if link is not None and link.broken is None:
            try:
                return await link.send(words)
            except exceptions.ConnectionError:
                pass  # it broke on the way: from here on as if there had been none
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
            except exceptions.TimeoutError as error:  # it does not accept, or we stood still
                raise exceptions.ConnectionError(str(error)) from error
            self._link = _Link(connection, self._timeout_s)
            self.connections += 1
            return self._link


class _Link(asyncio.Protocol):
    """One connection's life: until it breaks, each command sent gets its answer in turn.

    The client library makes the connection, and hands over its socket: packing and parsing here
    take a third of the time that its streams take, which is most of what a command costs.
    """

    def __init__(self, connection: AbstractConnection, timeout_s: float) -> None:
        self.broken: exceptions.RedisError | None = None
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0  # when the last answer came
        self._outgoing: list[bytes] = []
        self._pending: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._writable = True
        parser = connection._parser
        self._reader = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=parser.parse_error
        )
        assert connection._writer is not None  # noqa: S101 - it has connected
        self._transport: asyncio.WriteTransport = connection._writer.transport
        self._transport.set_protocol(self)

    def send(self, words: tuple[str | bytes | int, ...]) -> asyncio.Future[Any]:
        """The answer to be. Raises what the link broke of, or `ResponseError`."""
        if self.broken is not None:
            raise self.broken
        if len(self._pending) >= MAX_PENDING:
            raise exceptions.ResponseError(f"{MAX_PENDING} commands wait for their answers")
        packed = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub says one word
        answer: asyncio.Future[Any] = self._loop.create_future()
        now = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_at(now + self._timeout_s, self._look_at_oldest)
        if not self._pending:
            self._outgoing.append(packed)
            self._write()
        else:  # others are busy too: what they send in this turn goes along
            if not self._outgoing:
                self._loop.call_soon(self._write)
            self._outgoing.append(packed)
        self._pending.append((now, answer))
        return answer

    async def close(self) -> None:
        self._break(exceptions.ConnectionError("the connection was closed"))
        await self._connection.disconnect(nowait=True)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._reader.feed(data)
            while (value := self._reader.gets()) is not False:  # which no answer of RESP2 is
                self._answer(value)
        except (exceptions.RedisError, IndexError) as error:  # an answer nobody asked for
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc or exceptions.ConnectionError("the server closed the connection"))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._write()

    def _write(self) -> None:
        if self._outgoing and self._writable and self.broken is None:
            packed, self._outgoing = self._outgoing, []
            self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    def _answer(self, value: Any) -> None:
        _, answer = self._pending.popleft()
        if answer.done():
            return  # whoever asked was cancelled
        if not isinstance(value, exceptions.RedisError):
            answer.set_result(value)
        elif isinstance(value, exceptions.ResponseError) and not isinstance(
            value, exceptions.ReadOnlyError
        ):
            answer.set_exception(value)
        else:  # it loads, or is a replica now: another connection may lead to who takes over
            answer.set_exception(value)
            raise value

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
            # Closing it instead would wait for a server that is silent.
            self._transport.abort()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._pending:
            _, answer = self._pending.popleft()
            if not answer.done():
                answer.set_exception(self.broken)


async def _go_on(_: Exception) -> None:
    """Nothing to put right before the next attempt: it makes a new connection."""
