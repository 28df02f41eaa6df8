"""The worker's end of one zygote process: start it, ask it for sandboxes, learn how they end."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from readie_wire.zygotes import LineDecoder, StartRequest, encode_line
from readie_worker.sandbox import fork_limits
from readie_worker.sandbox.api import Ledger, NoLedger, SandboxExit
from readie_worker.sandbox.errors import CheckpointRefusedError, StartError

READ_BYTES = 256 << 10
PRINTED_BYTES = 2_000  # the end of what imports printed, quoted when the zygote dies without a word
END_DEADLINE_S = 5.0  # a zygote that has been told to end takes milliseconds


class ZygoteUnusableError(Exception):
    """The zygote is gone, or older than the packages on disk: another one may do."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a zygote. Times in seconds; ``folder`` is its own and exists."""

    python: str
    folder: Path
    ledger: Ledger = field(default_factory=NoLedger)
    environment: Mapping[str, str] = field(default_factory=dict)
    imports: Sequence[str] = ()
    checkpoint: str = ""
    import_deadline: float = 300.0
    start_deadline: float = 10.0


@dataclass(slots=True)
class Started:
    """A sandbox's process: its pid, and the future end of it."""

    id: str
    pid: int
    exit: asyncio.Future[SandboxExit]
    killed: bool = False
    cleared: bool = False  # its folder was empty and is gone


class ZygoteProcess:
    """Belongs to one event loop. Start it from the thread whose end shall be its end."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self._decoder = LineDecoder()
        self._ready: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._starting: dict[str, asyncio.Future[Started]] = {}
        self._sandboxes: dict[str, Started] = {}
        self._sending = asyncio.Lock()
        self._on_idle: Callable[[], None] | None = None
        self.alive = True
        self.mapped = 0  # bytes of private memory that every sandbox shares with it
        self._printed = b""
        # A pipe, not a file: a clone's streams are set up on pipes too, and remember the kind.
        self._output, their_output = os.pipe()
        os.set_blocking(self._output, False)
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        try:
            self._process = self._start_process(theirs, their_output)
        finally:
            theirs.close()
            os.close(their_output)
        launch.ledger.process(self.pid)
        self._loop.add_reader(self._output, self._read_output)
        self._loop.add_reader(self._control, self._read)

    def _start_process(self, theirs: socket.socket, output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._launch.python, "-I", "-m", "readie_executor"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            cwd="/",
            start_new_session=True,
            env={
                **self._launch.environment,
                "LANG": "C.UTF-8",
                "EXECUTOR_MODE": "zygote",
                "READIE_CONNECTION": f"fd:{theirs.fileno()}",
                "READIE_FOLDER": str(self._launch.folder),
                "READIE_PREIMPORT": ",".join(self._launch.imports),
                "READIE_CHECKPOINT": self._launch.checkpoint,
            },
        )

    @classmethod
    async def start(cls, launch: Launch) -> Self:
        """Until everything is imported. Raises `CheckpointRefusedError`; nothing is left then."""
        zygote = cls(launch)
        try:
            async with asyncio.timeout(launch.import_deadline):
                await asyncio.shield(zygote._ready)
        except TimeoutError:
            await zygote.end()
            raise CheckpointRefusedError(
                f"importing {', '.join(launch.imports)} took longer than "
                f"{launch.import_deadline:g} s"
            ) from None
        except BaseException:
            await zygote.end()
            raise
        zygote.mapped = fork_limits.mapped_memory(zygote.pid)
        return zygote

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def report(self) -> Mapping[str, Any]:
        """What the zygote found out while it imported; see `readie_wire.zygotes`."""
        return self._ready.result()

    async def fork(self, request: StartRequest, descriptors: Sequence[int]) -> Started:
        """A new sandbox's process, which may have ended. Raises `ZygoteUnusableError`, `StartError`."""
        if not self.alive:
            raise ZygoteUnusableError("the zygote has ended")
        future: asyncio.Future[Started] = self._loop.create_future()
        self._starting[request.id] = future
        try:
            async with asyncio.timeout(self._launch.start_deadline):
                await self._send(encode_line(request.to_json()), descriptors)
                return await future
        except TimeoutError:
            raise StartError(
                f"the zygote did not fork within {self._launch.start_deadline:g} s"
            ) from None
        finally:
            # A process that comes up after this is not wanted: `_started` ends it.
            self._starting.pop(request.id, None)
            self._check_idle()

    def kill(self, sandbox: Started) -> None:
        """End its process group; harmless once it has ended."""
        if not sandbox.exit.done():
            sandbox.killed = True
            _kill_group(sandbox.pid)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once, when no sandbox of this zygote lives; the zygote gets no more work."""
        self._on_idle = callback
        self._check_idle()

    async def end(self) -> None:
        """End the zygote and every sandbox of it. Idempotent."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not self._ready.done() or self._ready.cancelled():
            self._process.kill()  # it may hang in an import and never look at its connection
        try:
            await asyncio.to_thread(self._process.wait, END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._gone()

    async def _send(self, line: bytes, descriptors: Sequence[int]) -> None:
        async with self._sending:
            while True:
                try:
                    # One message of a few hundred bytes goes out whole or not at all.
                    socket.send_fds(self._control, [line], list(descriptors))
                    return
                except BlockingIOError:
                    await self._writable()
                except OSError as error:
                    raise ZygoteUnusableError("the zygote has ended") from error

    async def _writable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_writer(self._control, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_writer(self._control)

    def _read_output(self) -> None:
        """What imports print; drained for as long as the zygote lives, and only the end is kept."""
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._output)
        self._printed = (self._printed + data)[-PRINTED_BYTES:]

    def _read(self) -> None:
        try:
            data = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone()
            return
        for message in self._decoder.feed(data):
            self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "ready":
            self._ready.set_result(message["report"])
        elif kind == "refused":
            self._refuse(message["reason"])
        elif kind == "started":
            self._started(message["id"], message["pid"])
        elif kind == "failed":
            self._not_started(message["id"], StartError(message["reason"]))
        elif kind == "stale":
            error = ZygoteUnusableError("installed packages have changed since its imports")
            self._not_started(message["id"], error)
        elif kind == "exited":
            self._exited(message)

    def _started(self, sandbox_id: str, pid: int) -> None:
        sandbox = Started(sandbox_id, pid, self._loop.create_future())
        self._sandboxes[sandbox_id] = sandbox
        future = self._starting.pop(sandbox_id, None)
        if future is None or future.done():
            self.kill(sandbox)  # whoever asked has stopped waiting
        else:
            future.set_result(sandbox)

    def _not_started(self, sandbox_id: str, error: Exception) -> None:
        future = self._starting.pop(sandbox_id, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def _exited(self, message: Mapping[str, Any]) -> None:
        sandbox = self._sandboxes.pop(message["id"])
        sandbox.cleared = message["cleared"]
        code = os.waitstatus_to_exitcode(message["status"])
        sandbox.exit.set_result(
            SandboxExit(
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                peak_memory=message["peak_memory"],
            )
        )
        self._check_idle()

    def _gone(self) -> None:
        """The zygote has ended: so have its sandboxes, whose process groups are swept."""
        if not self.alive:
            return
        self.alive = False
        self._read_output()
        for end in (self._control, self._output):
            self._loop.remove_reader(end)
        self._control.close()
        os.close(self._output)
        self._launch.ledger.process_over(self.pid)
        if not self._ready.done():
            self._refuse(self._last_words())
        for sandbox_id in list(self._starting):
            self._not_started(sandbox_id, ZygoteUnusableError("the zygote has ended"))
        for sandbox in self._sandboxes.values():
            _kill_group(sandbox.pid)
            sandbox.exit.set_result(SandboxExit(signal=signal.SIGKILL))
        self._sandboxes.clear()
        self._check_idle()

    def _refuse(self, reason: str) -> None:
        self._ready.set_exception(CheckpointRefusedError(reason))
        self._ready.exception()  # taken note of, also when whoever started it has given up

    def _check_idle(self) -> None:
        if self._on_idle is not None and not self._sandboxes and not self._starting:
            callback, self._on_idle = self._on_idle, None
            callback()

    def _last_words(self) -> str:
        words = self._printed.decode("utf-8", "replace").strip() or "it printed nothing"
        return f"the zygote ended while importing {', '.join(self._launch.imports)}: {words}"


def _kill_group(pid: int) -> None:
    # A process forked a moment ago may not have its own group yet, so it is named as well.
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
