"""The fork runtime: a zygote process per checkpoint, forked for every sandbox. No isolation.

It is for one user's own code. A cold start is a fresh interpreter, started by a zygote that has
imported nothing, so that every sandbox begins, is watched and ends in the same way.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from readie_wire.zygotes import StartRequest
from readie_worker.sandbox import fork_limits
from readie_worker.sandbox.api import Checkpoint, Ledger, NoLedger, SandboxSpec
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    StartError,
)
from readie_worker.sandbox.fork_folders import RunFolder
from readie_worker.sandbox.fork_identity import Identity, choose_identity
from readie_worker.sandbox.fork_sandbox import Ends, ForkSandbox, Holding
from readie_worker.sandbox.fork_zygote import Launch, ZygoteProcess, ZygoteUnusableError

# What of the worker's environment may reach a sandbox. Everything else stays: secrets are in it.
PASSED_ON = (
    "TZ",
    "TZDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
COLD = ""  # key of the zygote that imports nothing


class ForkRuntime:
    """See `readie_worker.sandbox.api.Runtime`. Use it from one event loop, of the main thread.

    ``folder`` holds the run folder, and may be shared by runtimes. ``environment`` is the worker's
    own, of which `PASSED_ON` is used. ``ledger`` is told of every zygote. Deadlines in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        ledger: Ledger | None = None,
        import_deadline: float = 300.0,
        start_deadline: float = 10.0,
    ) -> None:
        given = environment or {}
        self._parent = folder
        self._environment = {name: given[name] for name in PASSED_ON if name in given}
        self._python = python
        self._ledger = ledger or NoLedger()
        self._import_deadline = import_deadline
        self._start_deadline = start_deadline
        self._identity = Identity(separate=False)
        self._kills = fork_limits.OutOfMemoryKills()
        self._run_folder: RunFolder | None = None
        self._checkpoints: dict[str, Checkpoint] = {}
        self._zygotes: dict[str, ZygoteProcess] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._launched = 0
        self._sandboxes: dict[str, ForkSandbox] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return "fork"

    @property
    def isolation(self) -> str:
        return "none"

    @property
    def notes(self) -> Sequence[str]:
        notes = ["calls run as plain processes of this machine, without isolation"]
        if self._identity.note:
            notes.append(self._identity.note)
        if not fork_limits.SUPPORTED:
            notes.append("memory and process limits are not enforced on this system")
        return notes

    async def open(self) -> None:
        try:
            self._run_folder = RunFolder(self._parent)
        except OSError as error:
            raise RuntimeUnavailableError(
                f"the fork runtime cannot use the folder {self._parent}: {error}; name another one"
            ) from error
        self._identity = await choose_identity(self._python, self._run_folder.path)
        try:
            self._zygotes[COLD] = await self._launch(COLD, ())
        except CheckpointRefusedError as error:
            await self.close()
            raise RuntimeUnavailableError(
                f"{self._python} cannot run the executor: {error}; install readie for it"
            ) from error

    async def adopt(self, checkpoint: Checkpoint) -> None:
        async with self._lock(checkpoint.key):
            if checkpoint.key not in self._zygotes:
                zygote = await self._launch(checkpoint.key, checkpoint.imports)
                self._zygotes[checkpoint.key] = zygote
            self._checkpoints[checkpoint.key] = checkpoint

    def report(self, key: str) -> Mapping[str, Any]:
        """What importing an adopted checkpoint's packages took and read; KeyError if not adopted."""
        return self._zygotes[key].report

    async def discard(self, key: str) -> None:
        async with self._lock(key):
            self._checkpoints.pop(key, None)
            if zygote := self._zygotes.pop(key, None):
                self._retire(zygote)

    async def cold(self, spec: SandboxSpec) -> ForkSandbox:
        return await self._start(COLD, spec, None)

    async def restore(self, checkpoint: Checkpoint, spec: SandboxSpec) -> ForkSandbox:
        if checkpoint.key not in self._checkpoints:
            raise StartError(f"checkpoint {checkpoint.key} has not been adopted here")
        return await self._start(checkpoint.key, spec, self._checkpoints[checkpoint.key])

    async def close(self) -> None:
        zygotes = list(self._zygotes.values())
        self._zygotes.clear()
        self._checkpoints.clear()
        for zygote in zygotes:
            self._end_in_background(zygote)
        sandboxes = list(self._sandboxes.values())
        await asyncio.gather(*(sandbox.destroy() for sandbox in sandboxes))
        while self._ending:  # with their last sandbox, those end as well that were retired
            await asyncio.gather(*self._ending)
        if self._run_folder is not None:
            await asyncio.to_thread(self._run_folder.remove)
            self._run_folder = None

    async def _start(
        self, key: str, spec: SandboxSpec, checkpoint: Checkpoint | None
    ) -> ForkSandbox:
        """Fork the zygote; one that is gone or stale is replaced once."""
        zygote = self._zygotes.get(key)
        try:
            if zygote is None:
                raise ZygoteUnusableError("the fork runtime is not open")
            return await self._fork(zygote, spec, checkpoint)
        except ZygoteUnusableError as error:
            if zygote is None:
                raise StartError(str(error)) from error
        try:
            return await self._fork(await self._replace(key, zygote), spec, checkpoint)
        except (ZygoteUnusableError, CheckpointRefusedError) as error:
            raise StartError(
                f"the zygote of {key or 'cold starts'} is unusable: {error}"
            ) from error

    async def _fork(
        self, zygote: ZygoteProcess, spec: SandboxSpec, checkpoint: Checkpoint | None
    ) -> ForkSandbox:
        if self._run_folder is None:
            raise StartError("the fork runtime is not open")
        uid = self._identity.next_uid()
        folder = self._run_folder.path / spec.id  # made by the new process: a busy disk takes time
        try:
            ends = Ends()
        except OSError as error:
            raise StartError(f"no pipes for sandbox {spec.id}: {error}") from error
        request = StartRequest(spec.id, str(folder), fresh=checkpoint is None, uid=uid)
        kills = self._kills.lately()
        try:
            started = await zygote.fork(request, ends.theirs)
        except BaseException:
            ends.close_ours()
            raise
        finally:
            ends.close_theirs()
        holding = Holding(ends, folder, zygote.mapped, uid is not None, kills, self._forget)
        sandbox = ForkSandbox(zygote, started, holding, checkpoint)
        self._sandboxes[sandbox.id] = sandbox
        return await sandbox.limited(spec.limits)

    async def _replace(self, key: str, unusable: ZygoteProcess) -> ZygoteProcess:
        async with self._lock(key):
            current = self._zygotes.get(key)
            if current is None:
                raise ZygoteUnusableError("the checkpoint was discarded meanwhile")
            if current is not unusable:
                return current  # another start has replaced it
            imports = self._checkpoints[key].imports if key else ()
            fresh = await self._launch(key, imports)
            self._zygotes[key] = fresh
            self._retire(unusable)
            return fresh

    async def _launch(self, key: str, imports: Sequence[str]) -> ZygoteProcess:
        if self._run_folder is None:
            raise CheckpointRefusedError("the fork runtime is not open")
        self._launched += 1
        folder = self._run_folder.create(f"zygote-{self._launched}")
        return await ZygoteProcess.start(
            Launch(
                python=self._python,
                folder=folder,
                ledger=self._ledger,
                environment=self._environment,
                imports=tuple(imports),
                checkpoint=key,
                import_deadline=self._import_deadline,
                start_deadline=self._start_deadline,
            )
        )

    def _forget(self, sandbox_id: str) -> None:
        self._sandboxes.pop(sandbox_id, None)

    def _retire(self, zygote: ZygoteProcess) -> None:
        """Its sandboxes live on; it ends with the last of them."""
        zygote.when_idle(lambda: self._end_in_background(zygote))

    def _end_in_background(self, zygote: ZygoteProcess) -> None:
        task = asyncio.get_running_loop().create_task(zygote.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())
