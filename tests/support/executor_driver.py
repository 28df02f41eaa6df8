"""The worker's side of the executor protocol, for tests of executors and of sandbox runtimes."""

import asyncio
import contextlib
import json
import os
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from readie_wire.framing import Decoder, FrameType, Message, encode_message
from readie_wire.outcome import ErrorInfo

# Far above the slowest answer on a busy machine: only a hang meets it.
DEADLINE_S = 60.0
READ_BYTES = 256 << 10


@dataclass
class Reply:
    """How one call ended, with everything its sandbox wrote."""

    messages: list[Message]
    stdout: str
    stderr: str
    raw_stdout: bytes = field(repr=False, default=b"")

    @property
    def types(self) -> list[FrameType]:
        return [message.type for message in self.messages]

    @property
    def last(self) -> Message:
        assert self.messages, f"the sandbox answered nothing; stderr: {self.stderr}"
        return self.messages[-1]

    @property
    def value(self) -> Any:
        """What the function returned."""
        assert self.last.type is FrameType.RESULT, self.last.header
        if self.last.header["encoding"] == "json":
            return json.loads(self.last.body)
        return pickle.loads(self.last.body)

    @property
    def error(self) -> ErrorInfo:
        assert self.last.type is FrameType.ERROR, (self.last, self.stderr)
        return ErrorInfo.from_json(self.last.header["error"])

    @property
    def exception(self) -> BaseException | None:
        """The exception object, where it was sent."""
        assert self.last.type is FrameType.ERROR
        found: BaseException | None = pickle.loads(self.last.body) if self.last.body else None
        return found


class ExecutorDriver:
    """Drives one executor over the worker's ends of its connection and output pipes."""

    def __init__(self, connection: socket.socket, stdout: int, stderr: int) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.decoder = Decoder()
        self._received: list[Message] = []
        self._streams = (_Stream(stdout), _Stream(stderr))

    async def send(
        self, kind: FrameType, header: Mapping[str, Any] | None = None, body: bytes | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        for frame in encode_message(kind, header, body):
            await loop.sock_sendall(self._connection, frame)

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def receive(self) -> Message | None:
        """The next message; `None` at the end of the stream."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            while not self._received:
                try:
                    data = await loop.sock_recv(self._connection, READ_BYTES)
                except ConnectionResetError:
                    return None
                if not data:
                    return None
                self._received += self.decoder.feed(data)
        return self._received.pop(0)

    async def hello(self) -> Mapping[str, Any]:
        message = await self.receive()
        assert message is not None, f"no HELLO; stderr: {_text((await self.output())[1])}"
        assert message.type is FrameType.HELLO
        return message.header

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Reply:
        """Run a Python function; keyword arguments are the function's own."""
        return await self.run(pickled_call(function, *args, **kwargs))

    async def run_json(self, kind: str, request: Mapping[str, Any], **extra: Any) -> Reply:
        return await self.run(json.dumps(request).encode(), kind=kind, **extra)

    async def run(self, body: bytes, *, kind: str = "pickle", **extra: Any) -> Reply:
        """CALL and GO in one go, then everything up to the end of the sandbox."""
        await self.send(FrameType.CALL, call_header(kind, **extra), body)
        await self.send(FrameType.GO)
        return await self.finish()

    async def finish(self) -> Reply:
        messages = []
        while (message := await self.receive()) is not None:
            messages.append(message)
        stdout, stderr = await self.output()
        return Reply(messages, _text(stdout), _text(stderr), stdout)

    async def output(self) -> tuple[bytes, bytes]:
        """Both streams to their end, which is that of the sandbox."""
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(stream.task for stream in self._streams))
        stdout, stderr = self._streams
        return bytes(stdout.data), bytes(stderr.data)

    async def printed(self, text: bytes) -> None:
        """Until the text has come out on stdout."""
        stream = self._streams[0]
        async with asyncio.timeout(DEADLINE_S):
            while text not in stream.data:
                stream.grown.clear()
                await stream.grown.wait()

    async def close(self) -> None:
        self._connection.close()
        for stream in self._streams:
            stream.task.cancel()
        await asyncio.wait([stream.task for stream in self._streams])


def pickled_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    """The body of a call. A test module's functions travel by value: no sandbox has that module."""
    call = {"func": function, "args": args, "kwargs": kwargs}
    module = sys.modules.get(function.__module__)
    if module is None or not function.__module__.startswith("tests."):
        return bytes(cloudpickle.dumps(call))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(call))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def call_header(kind: str = "pickle", **extra: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "kind": kind,
        "function": "f",
        "call_id": "call-test",
        "environment": {},
        "secrets": {},
        **extra,
    }


@contextlib.asynccontextmanager
async def driven(
    connection: socket.socket, stdout: int, stderr: int
) -> AsyncIterator[ExecutorDriver]:
    driver = ExecutorDriver(connection, stdout, stderr)
    try:
        yield driver
    finally:
        await driver.close()


class _Stream:
    """Reads a pipe to its end and closes it.

    By a descriptor of its own: a sandbox that is destroyed closes what nobody has closed, and the
    number may be another file's by the time that this would close it.
    """

    def __init__(self, descriptor: int) -> None:
        self.data = bytearray()
        self.grown = asyncio.Event()
        own = os.dup(descriptor)
        os.close(descriptor)
        os.set_blocking(own, False)
        self.task = asyncio.create_task(self._read(own))

    async def _read(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            while True:
                ready.clear()
                try:
                    data = os.read(descriptor, READ_BYTES)
                except BlockingIOError:
                    await ready.wait()
                    continue
                if not data:
                    return
                self.data += data
                self.grown.set()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _text(data: bytes) -> str:
    return data.decode("utf-8")
