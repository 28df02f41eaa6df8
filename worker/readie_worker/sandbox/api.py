"""What a sandbox runtime is: the behaviour that every implementation must have.

The conformance suite in the tests runs against each of them. A runtime never interprets a call; it
starts the executor program, gives the worker's ends of its connection and output pipes, and ends
it. All methods are coroutines of one event loop and safe to call concurrently unless said.
"""

import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from readie_wire.outcome import StartKind

Network = Literal["sandbox", "none", "host"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use. Memory in bytes; ``cpus`` may be a fraction, 0 means no limit.

    ``max_memory`` is how far somebody who watches it lets its memory grow, where that was said: a
    runtime whose limit refuses an allocation at once, before anybody can raise it, allows so much.
    ``growing`` says that somebody will raise ``memory``, or set limits without it: where a runtime
    can, what meets the limit until then waits instead of being ended.
    """

    memory: int
    max_memory: int = 0
    growing: bool = False
    cpus: float = 0.0
    pids: int = 512
    open_files: int = 4096


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox to be. ``id`` is unique for ever: a runtime may name host objects after it."""

    id: str
    limits: Limits
    network: Network = "sandbox"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a generation on this worker's disk.

    ``key`` is ``"generation/checkpoint_3"``; ``imports`` the canonical module names, in order;
    ``path`` the folder with ``meta.json`` and image files; ``meta`` the content of ``meta.json``.
    """

    key: str
    imports: Sequence[str]
    path: Path | None = None
    meta: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxExit:
    """How a sandbox ended: exactly one of ``exit_code`` and ``signal`` is set.

    ``out_of_memory``: the kernel (or the runtime) ended it for its memory limit; ``crowded``: it
    ended over its limit of processes. ``peak_memory`` in bytes where the runtime can tell.
    """

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    peak_memory: int | None = None
    crowded: bool = False

    def __str__(self) -> str:
        """What became of it, to go on a sentence with."""
        if self.out_of_memory:
            return "ran out of memory"
        if self.crowded:
            return "needed more processes than it may have"
        if self.signal is None:
            return f"ended with exit code {self.exit_code}"
        try:
            return f"was ended by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"was ended by signal {self.signal}"


class Ledger(Protocol):
    """Told of what would outlive this process if it were killed, so that somebody else may end it."""

    def process(self, pid: int) -> None:
        """A process whose descendants are sandboxes."""

    def process_over(self, pid: int) -> None:
        """It has ended."""

    def group(self, folder: Path) -> None:
        """A cgroup with nothing but sandboxes in it, and below it."""

    def afterwards(self, command: Sequence[str]) -> None:
        """Removes what is left on the host when this process and its sandboxes are gone."""


class NoLedger:
    """For processes that nobody watches, such as tests and the pipeline."""

    def process(self, pid: int) -> None:
        """See `Ledger`."""

    def process_over(self, pid: int) -> None:
        """See `Ledger`."""

    def group(self, folder: Path) -> None:
        """See `Ledger`."""

    def afterwards(self, command: Sequence[str]) -> None:
        """See `Ledger`."""


class Sandbox(Protocol):
    """One running executor.

    ``connection`` is the worker's connected, non-blocking end of the executor's socket: the first
    message on it is HELLO. ``stdout`` and ``stderr`` are non-blocking read ends of pipes that see
    end of file when the last process of the sandbox is gone. The caller owns all three after
    `Runtime.cold` or `Runtime.restore` returned, and closes them; `destroy` does so if it did not.
    """

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> StartKind: ...
    @property
    def checkpoint(self) -> Checkpoint | None: ...
    @property
    def connection(self) -> socket.socket: ...
    @property
    def stdout(self) -> int: ...
    @property
    def stderr(self) -> int: ...

    async def set_limits(self, limits: Limits) -> None:
        """Apply other limits before GO. Raises `SandboxGoneError` after the sandbox's end."""

    async def wait(self) -> SandboxExit:
        """Until the executor has ended. Any number of waiters; the same answer each time."""

    async def kill(self) -> None:
        """End every process of the sandbox at once. Harmless when it is already dead."""

    async def memory_in_use(self) -> int | None:
        """Bytes that count against its limit now, where the runtime can tell; `None` after the end."""

    async def peak_memory(self) -> int | None:
        """Bytes used at most so far, where the runtime can tell; harmless after the end."""

    async def destroy(self) -> None:
        """Kill, and free everything it held on the host. Idempotent; may be slow."""


class Runtime(Protocol):
    """A way to start sandboxes. ``name`` is ``fork``, ``gvisor`` or ``docker``.

    ``isolation`` is ``none``, ``container`` or ``gvisor``; ``notes`` are sentences about what this
    machine made it do differently, for the worker's record and ``readie doctor``.
    """

    @property
    def name(self) -> str: ...
    @property
    def isolation(self) -> str: ...
    @property
    def notes(self) -> Sequence[str]: ...

    async def open(self) -> None:
        """Check the machine, remove orphans of one's own earlier runs.

        Raises `RuntimeUnavailableError` with what is missing and how to get it.
        """

    async def adopt(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint restorable. Raises `CheckpointRefusedError` with the reason."""

    async def discard(self, key: str) -> None:
        """Forget a checkpoint and free what it held. Sandboxes made from it live on."""

    async def cold(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh interpreter. Raises `StartError`."""

    async def restore(self, checkpoint: Checkpoint, spec: SandboxSpec) -> Sandbox:
        """Start from an adopted checkpoint. Raises `StartError`; nothing of it is left then."""

    async def close(self) -> None:
        """End every sandbox and free everything. Idempotent."""
