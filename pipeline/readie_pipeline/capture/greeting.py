"""Times a sandbox from its start until its executor says HELLO."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from readie_pipeline.errors import CaptureError
from readie_wire.framing import Decoder, FrameType, ProtocolError
from readie_worker.sandbox.api import Sandbox
from readie_worker.sandbox.errors import SandboxError

_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Greeting:
    """``seconds`` from the order to start until HELLO; ``hello`` is its header."""

    seconds: float
    hello: Mapping[str, Any]


async def time_start(start: Callable[[], Awaitable[Sandbox]], deadline_s: float) -> Greeting:
    """Start a sandbox, wait for its HELLO, destroy it. Raises `CaptureError`."""
    started = time.perf_counter()
    try:
        sandbox = await start()
    except SandboxError as error:
        raise CaptureError(str(error)) from error
    try:
        async with asyncio.timeout(deadline_s):
            hello = await _read_hello(sandbox)
        return Greeting(time.perf_counter() - started, hello)
    except TimeoutError as error:
        raise CaptureError(f"the executor said nothing for {deadline_s:g} s") from error
    except (OSError, ProtocolError) as error:
        raise CaptureError(f"the executor broke the protocol: {error}") from error
    finally:
        await sandbox.destroy()


async def _read_hello(sandbox: Sandbox) -> Mapping[str, Any]:
    loop = asyncio.get_running_loop()
    decoder = Decoder()
    while data := await loop.sock_recv(sandbox.connection, _READ_BYTES):
        for message in decoder.feed(data):
            if message.type is not FrameType.HELLO:
                raise ProtocolError(f"{message.type.name} came before HELLO")
            return message.header
    raise ProtocolError("it ended before HELLO")
