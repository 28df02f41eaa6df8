"""A process that has imported a checkpoint's packages and is forked for every sandbox of it."""

import contextlib
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from readie_executor import kernel, output
from readie_executor.environment import remove_if_empty
from readie_executor.freshness import InstalledPackages
from readie_executor.running import MAXRSS_UNIT
from readie_wire.zygotes import DESCRIPTORS, LineDecoder, StartRequest, encode_line

READ_BYTES = 64 << 10
MAX_DESCRIPTORS = 60  # in one message: far more than requests that can queue in one read


@dataclass(frozen=True, slots=True)
class Child:
    """What the forked process goes on with: it is a sandbox's executor from here."""

    request: StartRequest
    connection: socket.socket


class Zygote:
    """Serves one control connection. Single-threaded, as a process that forks must be."""

    def __init__(self, control: socket.socket, packages: InstalledPackages) -> None:
        self._control = control
        self._packages = packages
        self._decoder = LineDecoder()
        self._descriptors: list[int] = []
        self._sandboxes: dict[int, StartRequest] = {}  # by pid
        self._bell, self._bell_end = os.pipe()

    def run(self) -> Child | None:
        """Until the worker closes the connection; then every sandbox is ended.

        Returns twice: `None` in the zygote, a `Child` in each process it forked.
        """
        os.set_blocking(self._bell_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._bell_end, warn_on_full_buffer=False)
        kernel.adopt_orphans()
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._bell], [], [])
            if self._bell in readable:
                os.read(self._bell, READ_BYTES)
                self._reap()
            if self._control.fileno() in readable:
                requests = self._receive()
                if requests is None:
                    self._end_all()
                    return None
                for request in requests:
                    if (child := self._start(request)) is not None:
                        return child

    def _receive(self) -> list[StartRequest] | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, READ_BYTES, MAX_DESCRIPTORS)
        except ConnectionResetError:
            return None
        self._descriptors += descriptors
        if not data:
            return None
        return [StartRequest.from_json(line) for line in self._decoder.feed(data)]

    def _start(self, request: StartRequest) -> Child | None:
        given = self._descriptors[:DESCRIPTORS]
        del self._descriptors[:DESCRIPTORS]
        child = None
        if not request.fresh and not self._packages.unchanged():
            self._reply("stale", id=request.id)
        else:
            child = self._fork(request, given)
        if child is None:
            for descriptor in given:
                os.close(descriptor)
        return child

    def _fork(self, request: StartRequest, given: list[int]) -> Child | None:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._reply("failed", id=request.id, reason=f"fork: {error}")
            return None
        if pid:
            self._sandboxes[pid] = request
            self._reply("started", id=request.id, pid=pid)
            return None
        self._become(request, given, zygote)
        connection = socket.socket(fileno=given[0])
        if request.fresh:
            _execute(request, connection)
        return Child(request, connection)

    def _become(self, request: StartRequest, given: list[int], zygote: int) -> None:
        """In the child: let go of everything of the zygote's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for descriptor in (self._bell, self._bell_end, *self._descriptors):
            os.close(descriptor)
        os.setsid()  # a group of its own, which the worker can kill as one
        output.attach(given[1], given[2])
        os.mkdir(request.folder, 0o700)  # noqa: PTH102 - pathlib stays unloaded
        if request.uid is not None:
            os.chown(request.folder, request.uid, request.uid)
            os.setgroups([])
            os.setresgid(request.uid, request.uid, request.uid)
            os.setresuid(request.uid, request.uid, request.uid)
        kernel.die_with_parent(zygote)
        kernel.adopt_orphans()

    def _reap(self) -> None:
        """Collect every child that has ended, and end what a sandbox's executor left behind."""
        while (ended := self._collect_one()) is not None:
            pid, status, peak_memory = ended
            sandbox = self._sandboxes.pop(pid, None)
            self._end_orphans()
            if sandbox is not None:
                self._reply(
                    "exited",
                    id=sandbox.id,
                    status=status,
                    peak_memory=peak_memory,
                    cleared=remove_if_empty(sandbox.folder),
                )

    def _collect_one(self) -> tuple[int, int, int] | None:
        """A child that has ended, with what is left of its process group: pid, status, peak."""
        try:
            which = _peek()
            if which in self._sandboxes:
                # Before it is collected: until then nothing else can have its number.
                _kill_group(which)
            pid, status, usage = os.wait4(which, os.WNOHANG)
        except ChildProcessError:
            return None
        return (pid, status, usage.ru_maxrss * MAXRSS_UNIT) if pid else None

    def _end_orphans(self) -> None:
        """Processes that left their sandbox's group come to the zygote when its executor ends."""
        for pid in kernel.children():
            if pid not in self._sandboxes:
                os.kill(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        for pid in self._sandboxes:
            _kill_group(pid)
        while self._sandboxes:
            self._reap()
            if self._sandboxes:
                select.select([self._bell], [], [])
                os.read(self._bell, READ_BYTES)

    def _reply(self, kind: str, **content: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next read tells
            self._control.sendall(encode_line({"type": kind, **content}))


def _peek() -> int:
    """A child that has ended and is not collected yet; -1, any, where there is none to be seen."""
    if not hasattr(os, "waitid"):  # macOS
        return -1
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found.si_pid if found is not None else -1


def _kill_group(pid: int) -> None:
    # A child that was forked a moment ago may not have its own group yet.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _execute(request: StartRequest, connection: socket.socket) -> None:
    """Become a fresh interpreter that serves on the connection."""
    connection.set_inheritable(True)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("HOME", "TMPDIR")},
        "EXECUTOR_MODE": "sandbox",
        "READIE_CONNECTION": f"fd:{connection.fileno()}",
        "READIE_FOLDER": request.folder,
    }
    command = [sys.executable, "-I", "-m", "readie_executor"]
    try:
        os.execve(command[0], command, environment)  # noqa: S606 - our own interpreter
    except OSError as error:
        os.write(2, f"readie: {command[0]} cannot be started: {error}\n".encode())
        os._exit(127)
