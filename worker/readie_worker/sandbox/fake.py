"""A runtime without processes, which fails on request: for tests of what uses a runtime.

Its executor is a task of the event loop that speaks the protocol over a real socket pair and real
pipes. `Fault` lists what can go wrong with a start; each start takes the next one that was ordered.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from readie_wire.framing import Decoder, FrameType, Message, encode_message
from readie_wire.outcome import StartKind
from readie_wire.versions import PROTOCOL_VERSION
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxExit, SandboxSpec
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    SandboxGoneError,
    StartError,
)

READ_BYTES = 64 << 10


class Fault(StrEnum):
    """What goes wrong with one sandbox, in the order of its life."""

    FAILS_TO_START = "fails to start"  # `cold` or `restore` raises StartError
    HANGS_IN_START = "hangs in start"  # neither returns
    DIES_BEFORE_HELLO = "dies before HELLO"
    HANGS_BEFORE_HELLO = "hangs before HELLO"
    SPEAKS_ANOTHER_PROTOCOL = "speaks another protocol"  # HELLO names a version nobody reads
    WRITES_GARBAGE = "writes garbage"  # bytes that are no frames
    DIES_BEFORE_READY = "dies before READY"
    HANGS_BEFORE_READY = "hangs before READY"
    DIES_BEFORE_GO = "dies before GO"  # after READY
    DIES_BEFORE_STARTED = "dies before STARTED"  # after GO
    DIES_AFTER_STARTED = "dies after STARTED"
    HANGS_AFTER_STARTED = "hangs after STARTED"
    TRUNCATES_ITS_RESULT = "truncates its result"
    LIMITS_FAIL = "limits fail"  # `set_limits` with other memory raises OSError


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """What a call in a fake sandbox comes to; ``stdout`` and ``stderr`` are written before it."""

    type: FrameType = FrameType.RESULT
    header: Mapping[str, Any] | None = None
    body: bytes = b"null"
    stdout: bytes = b""
    stderr: bytes = b""


def answer_null(_: Message) -> FakeAnswer:
    """The answer to every call unless another one is given: the JSON value ``null``."""
    header = {"encoding": "json", "size": 4, "import_ms": 0.0, "run_ms": 0.0, "imports_missed": []}
    return FakeAnswer(header={**header, "peak_memory": 0})


class _Died(Exception):  # noqa: N818 - not an error: how the fake executor leaves its script
    pass


class FakeSandbox:
    """See `readie_worker.sandbox.api.Sandbox`. ``limits`` are the last that were set."""

    def __init__(
        self,
        spec: SandboxSpec,
        checkpoint: Checkpoint | None,
        fault: Fault | None,
        answer: Callable[[Message], FakeAnswer],
    ) -> None:
        self.spec = spec
        self.limits = spec.limits
        self.destroyed = False
        self._checkpoint = checkpoint
        self._fault = fault
        self._answer = answer
        self._decoder = Decoder()
        self._messages: deque[Message] = deque()
        self._connection, self._theirs = socket.socketpair()
        self._connection.setblocking(False)
        self._theirs.setblocking(False)
        (self._stdout, self._out), (self._stderr, self._err) = os.pipe(), os.pipe()
        for descriptor in (self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        self._files = {fd: os.fstat(fd) for fd in (self._stdout, self._stderr)}
        self._exit: asyncio.Future[SandboxExit] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def kind(self) -> StartKind:
        return StartKind.COLD if self._checkpoint is None else StartKind.FORKED

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    @property
    def connection(self) -> socket.socket:
        return self._connection

    @property
    def stdout(self) -> int:
        return self._stdout

    @property
    def stderr(self) -> int:
        return self._stderr

    async def set_limits(self, limits: Limits) -> None:
        if self._exit.done():
            raise SandboxGoneError(f"sandbox {self.id} has ended")
        if self._fault is Fault.LIMITS_FAIL and limits.memory != self.limits.memory:
            raise OSError("the limits cannot be set (ordered by the test)")
        self.limits = limits

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._exit)

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._end(SandboxExit(signal=signal.SIGKILL))

    async def memory_in_use(self) -> int | None:
        return None

    async def peak_memory(self) -> int | None:
        return None

    async def destroy(self) -> None:
        await self.kill()
        self._connection.close()
        for descriptor, file in self._files.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), file):
                    os.close(descriptor)
        self._files.clear()
        self.destroyed = True

    async def _live(self) -> None:
        ended = SandboxExit(exit_code=0)
        try:
            await self._follow_the_script()
        except _Died:
            ended = SandboxExit(signal=signal.SIGSEGV)
        except OSError:  # the worker closed the connection
            pass
        self._end(ended)

    def _end(self, ended: SandboxExit) -> None:
        if self._exit.done():
            return
        self._theirs.close()
        os.close(self._out)
        os.close(self._err)
        self._exit.set_result(ended)

    async def _follow_the_script(self) -> None:
        await self._come(Fault.DIES_BEFORE_HELLO, Fault.HANGS_BEFORE_HELLO)
        if self._fault is Fault.WRITES_GARBAGE:
            await self._write(b"\xff" * 64)
            await asyncio.Event().wait()
        await self._send(FrameType.HELLO, self._hello())
        call = await self._expect(FrameType.CALL)
        await self._come(Fault.DIES_BEFORE_READY, Fault.HANGS_BEFORE_READY)
        await self._send(FrameType.READY)
        await self._come(Fault.DIES_BEFORE_GO)
        await self._expect(FrameType.GO)
        await self._come(Fault.DIES_BEFORE_STARTED)
        await self._send(FrameType.STARTED)
        await self._come(Fault.DIES_AFTER_STARTED, Fault.HANGS_AFTER_STARTED)
        answer = self._answer(call)
        os.write(self._out, answer.stdout)
        os.write(self._err, answer.stderr)
        if self._fault is Fault.TRUNCATES_ITS_RESULT:
            whole = b"".join(encode_message(answer.type, answer.header, answer.body))
            await self._write(whole[:-1])
            raise _Died
        await self._send(answer.type, answer.header, answer.body)

    async def _come(self, dies: Fault, hangs: Fault | None = None) -> None:
        if self._fault is dies:
            raise _Died
        if hangs is not None and self._fault is hangs:
            await asyncio.Event().wait()

    def _hello(self) -> dict[str, Any]:
        other = self._fault is Fault.SPEAKS_ANOTHER_PROTOCOL
        return {
            "protocol": PROTOCOL_VERSION + 1000 if other else PROTOCOL_VERSION,
            "python": "3.11.0",
            "pid": 0,
            "checkpoint": self._checkpoint.key if self._checkpoint else None,
            "mode": "fake",
        }

    async def _send(
        self, kind: FrameType, header: Mapping[str, Any] | None = None, body: bytes | None = None
    ) -> None:
        for frame in encode_message(kind, header, body):
            await self._write(frame)

    async def _write(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._theirs, data)

    async def _expect(self, kind: FrameType) -> Message:
        loop = asyncio.get_running_loop()
        while not self._messages:
            data = await loop.sock_recv(self._theirs, READ_BYTES)
            if not data:
                raise BrokenPipeError
            self._messages += self._decoder.feed(data)
        message = self._messages.popleft()
        if message.type is not kind:
            raise BrokenPipeError
        return message


class FakeRuntime:
    """See `readie_worker.sandbox.api.Runtime`.

    ``sandboxes`` are all it ever started, oldest first. ``refused`` are checkpoint keys that
    `adopt` refuses; ``unavailable`` makes `open` fail with that reason.
    """

    def __init__(
        self,
        *,
        answer: Callable[[Message], FakeAnswer] = answer_null,
        refused: Sequence[str] = (),
        unavailable: str = "",
    ) -> None:
        self.answer = answer
        self.adopted: dict[str, Checkpoint] = {}
        self.sandboxes: list[FakeSandbox] = []
        self.opened = False
        self._refused = frozenset(refused)
        self._unavailable = unavailable
        self._faults: deque[Fault | None] = deque()

    @property
    def name(self) -> str:
        return "fork"

    @property
    def isolation(self) -> str:
        return "none"

    @property
    def notes(self) -> Sequence[str]:
        return ("nothing runs here: this is a fake",)

    def order(self, *faults: Fault | None) -> None:
        """The next starts get these faults, one each; `None` is a start without one."""
        self._faults.extend(faults)

    async def open(self) -> None:
        if self._unavailable:
            raise RuntimeUnavailableError(self._unavailable)
        self.opened = True

    async def adopt(self, checkpoint: Checkpoint) -> None:
        if checkpoint.key in self._refused:
            raise CheckpointRefusedError(f"{checkpoint.key} is refused (ordered by the test)")
        self.adopted[checkpoint.key] = checkpoint

    async def discard(self, key: str) -> None:
        self.adopted.pop(key, None)

    async def cold(self, spec: SandboxSpec) -> FakeSandbox:
        return await self._start(spec, None)

    async def restore(self, checkpoint: Checkpoint, spec: SandboxSpec) -> FakeSandbox:
        if checkpoint.key not in self.adopted:
            raise StartError(f"checkpoint {checkpoint.key} has not been adopted here")
        return await self._start(spec, checkpoint)

    async def close(self) -> None:
        self.opened = False
        self.adopted.clear()
        for sandbox in self.sandboxes:
            await sandbox.destroy()

    async def _start(self, spec: SandboxSpec, checkpoint: Checkpoint | None) -> FakeSandbox:
        if not self.opened:
            raise StartError("the runtime is not open")
        fault = self._faults.popleft() if self._faults else None
        if fault is Fault.FAILS_TO_START:
            raise StartError("the sandbox does not start (ordered by the test)")
        if fault is Fault.HANGS_IN_START:
            await asyncio.Event().wait()
        sandbox = FakeSandbox(spec, checkpoint, fault, self.answer)
        self.sandboxes.append(sandbox)
        return sandbox
