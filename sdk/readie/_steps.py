"""One way of writing what is done both blocking and in an event loop.

*Steps* are a generator that yields operations and is sent their results; it holds all logic, and
no I/O. `drive` carries the operations out with blocking calls, `drive_async` in asyncio. Steps call
steps with ``yield from``. They must not yield while they are being closed.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Blocking work, such as looking up a name: in a thread where there is an event loop."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Write:
    """Send all of ``data``. Timeouts in seconds raise `TimeoutError`, in both drivers."""

    sock: socket.socket
    data: bytes
    timeout: float


@dataclass(frozen=True, slots=True)
class Receive:
    """Some bytes, empty at the end of the stream."""

    sock: socket.socket
    timeout: float


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


Operation: TypeAlias = Run | Write | Receive | Sleep
Steps: TypeAlias = Generator[Operation, Any, T]

RECEIVE_BYTES = 1 << 18


def drive(steps: Steps[T]) -> T:
    """Carry ``steps`` out in this thread."""
    try:
        operation = next(steps)
        while True:
            try:
                result = _carry_out(operation)
            except Exception as error:  # noqa: BLE001 - the steps decide about every error
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


async def drive_async(steps: Steps[T]) -> T:
    """Carry ``steps`` out in the running event loop."""
    try:
        operation = next(steps)
        while True:
            try:
                result = await _carry_out_async(operation)
            except Exception as error:  # noqa: BLE001 - the steps decide about every error
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


def _carry_out(operation: Operation) -> Any:
    match operation:
        case Receive(sock=sock, timeout=timeout):
            sock.settimeout(timeout)
            return sock.recv(RECEIVE_BYTES)
        case Write(sock=sock, data=data, timeout=timeout):
            sock.settimeout(timeout)
            return sock.sendall(data)
        case Run(work=work):
            return work()
        case Sleep(seconds=seconds):
            return time.sleep(seconds)


async def _carry_out_async(operation: Operation) -> Any:
    loop = asyncio.get_running_loop()
    match operation:
        case Receive(sock=sock, timeout=timeout):
            sock.setblocking(False)
            async with asyncio.timeout(timeout):
                return await loop.sock_recv(sock, RECEIVE_BYTES)
        case Write(sock=sock, data=data, timeout=timeout):
            sock.setblocking(False)
            async with asyncio.timeout(timeout):
                return await loop.sock_sendall(sock, data)
        case Run(work=work):
            return await asyncio.to_thread(work)
        case Sleep(seconds=seconds):
            return await asyncio.sleep(seconds)
