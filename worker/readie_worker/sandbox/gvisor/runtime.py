"""The gVisor runtime: every sandbox has a kernel of its own, restored from a checkpoint on disk."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readie_wire.manifest import CheckpointMeta, ManifestError
from readie_worker.sandbox.api import (
    Checkpoint,
    Ledger,
    Limits,
    Network,
    NoLedger,
    SandboxSpec,
)
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    SandboxError,
    StartError,
)
from readie_worker.sandbox.gvisor.builds import RunscBuild, UnusableBinaryError, identify
from readie_worker.sandbox.gvisor.capturing import Saved, save, time_restore
from readie_worker.sandbox.gvisor.compatibility import Here, cpu_features, obstacles
from readie_worker.sandbox.gvisor.container import CreatedContainer
from readie_worker.sandbox.gvisor.files import FileRecords, Seen, changed
from readie_worker.sandbox.gvisor.launcher import Launcher, open_ground
from readie_worker.sandbox.gvisor.ocispec import fingerprint
from readie_worker.sandbox.gvisor.orphans import remove_orphans, removing_orphans
from readie_worker.sandbox.gvisor.sandbox import GVisorSandbox
from readie_worker.sandbox.gvisor.shelf import Shelf

# What of the worker's environment may reach a sandbox. Everything else stays: secrets are in it.
PASSED_ON = ("TZ",)


@dataclass(frozen=True, slots=True)
class Adopted:
    """A checkpoint that fits, and all files it needs as they were when their hashes were right."""

    checkpoint: Checkpoint
    image: Path
    files: Sequence[Seen]


class GVisorRuntime:
    """See `readie_worker.sandbox.api.Runtime`.

    ``folder`` may be shared by runtimes. ``python`` is the interpreter that sandboxes run, with all
    that it has installed. ``network`` is the widest that a sandbox may ask for;
    ``none`` can always be had. ``ahead``: how many sandboxes are kept created, so that a start only
    has to restore. ``strict``: a checkpoint that was captured elsewhere is refused, else only noted.
    ``ledger`` is told where its sandboxes are. Deadlines in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        runsc: Path,
        python: Path = Path(sys.executable),
        network: Network = "sandbox",
        environment: Mapping[str, str] | None = None,
        ahead: int = 0,
        strict: bool = True,
        ledger: Ledger | None = None,
        start_deadline: float = 60.0,
    ) -> None:
        given = environment or {}
        self._parent = folder
        self._binary = runsc
        self._python = python
        self._network: Network = network
        self._variables = {name: given[name] for name in PASSED_ON if name in given}
        self._ahead = ahead
        self._strict = strict
        self._ledger = ledger or NoLedger()
        self._start_deadline = start_deadline
        self._notes: list[str] = []
        self._adopted: dict[str, Adopted] = {}
        self._launcher: Launcher | None = None
        self._shelf: Shelf | None = None
        self._records: FileRecords | None = None
        self._here: Here | None = None

    @property
    def name(self) -> str:
        return "gvisor"

    @property
    def isolation(self) -> str:
        return "gvisor"

    @property
    def notes(self) -> Sequence[str]:
        return tuple(self._notes)

    async def open(self) -> None:
        build = await asyncio.to_thread(_usable_build, self._binary)
        self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await remove_orphans(self._parent)
        ground = await open_ground(
            self._parent, build, self._python, with_network=self._network == "sandbox"
        )
        self._ledger.group(ground.cgroups.folder)
        self._ledger.afterwards(removing_orphans(self._parent))
        self._launcher = launcher = Launcher(ground, self._variables)
        self._shelf = Shelf(launcher, self._network, self._ahead)
        self._records = FileRecords(ground.rootfs.root, ground.rootfs.binds)
        self._here = Here(
            gvisor_version=build.version,
            fingerprint=fingerprint(launcher.shape),
            rootfs_digest=ground.rootfs.digest,
            cpu_features=cpu_features(),
        )
        self._notes = [f"runsc {build.version} ({build.go or 'unknown Go'}), systrap"]

    async def adopt(self, checkpoint: Checkpoint) -> None:
        if self._here is None or self._records is None:
            raise CheckpointRefusedError("the gvisor runtime is not open")
        meta = _meta(checkpoint)
        if checkpoint.path is None:
            raise CheckpointRefusedError("it has no image on this worker's disk")
        for obstacle in obstacles(meta, self._here):
            if self._strict:
                raise CheckpointRefusedError(obstacle)
            self._notes.append(f"{checkpoint.key}: {obstacle}; used all the same")
        records, path = self._records, checkpoint.path
        files = await asyncio.to_thread(records.verify_image, path, meta.image_files)
        files += await asyncio.to_thread(records.verify_mapped, meta.mapped_files)
        self._adopted[checkpoint.key] = Adopted(checkpoint, path, files)

    async def discard(self, key: str) -> None:
        self._adopted.pop(key, None)

    async def cold(self, spec: SandboxSpec) -> GVisorSandbox:
        async with self._taken(spec) as created:
            launcher = self._opened()
            connection = await launcher.start(created, self._start_deadline)
            return GVisorSandbox(spec.id, created, connection, None)

    async def restore(self, checkpoint: Checkpoint, spec: SandboxSpec) -> GVisorSandbox:
        adopted = self._adopted.get(checkpoint.key)
        if adopted is None:
            raise StartError(f"checkpoint {checkpoint.key} has not been adopted here")
        if spec.network == "host":
            raise StartError("gVisor restores no checkpoint with the network of the host")
        if (file := changed(adopted.files)) is not None:
            raise StartError(f"{file}, which checkpoint {checkpoint.key} needs, has changed")
        async with self._taken(spec) as created:
            created.parts.rundir.write_ticket(spec.id, checkpoint=checkpoint.key)
            launcher = self._opened()
            connection = await launcher.restore(created, adopted.image, self._start_deadline)
            return GVisorSandbox(spec.id, created, connection, adopted.checkpoint)

    async def capture(
        self, imports: Sequence[str], folder: Path, *, limits: Limits, deadline: float
    ) -> Saved:
        """Save a process that has imported ``imports`` to the existing ``folder``.

        Raises `CheckpointRefusedError` with the reason why it must not be saved, and `StartError`.
        """
        if self._records is None:
            raise StartError("the gvisor runtime is not open")
        return await save(self._opened(), self._records, imports, folder, limits, deadline)

    async def measure(self, folder: Path, *, limits: Limits, deadline: float) -> float:
        """Seconds that a restore of the image in ``folder`` takes, its exit included."""
        return await time_restore(self._opened(), folder, limits, deadline)

    @property
    def here(self) -> Here:
        """What checkpoints captured now will be compared with. Only while open."""
        if self._here is None:
            raise StartError("the gvisor runtime is not open")
        return self._here

    def facts(self) -> dict[str, Any]:
        """What a manifest records of this runtime, for people and for comparison."""
        launcher = self._opened()
        shape, build = launcher.shape, launcher.ground.build
        return {
            "version": build.version,
            "go": build.go,
            "runsc_sha256": build.sha256,
            "fingerprint": self.here.fingerprint,
            "platform": "systrap",
            "overlay": "root:memory",
            "network": "none",
            "stdio": ["null", "pipe", "pipe"],
            "command": list(shape.command),
            "mounts": [bind.target for bind in shape.binds],
            "user": [shape.uid, shape.gid],
            "open_files": shape.open_files,
            "cpu_features": sorted(self.here.cpu_features),
        }

    async def close(self) -> None:
        launcher, self._launcher = self._launcher, None
        shelf, self._shelf = self._shelf, None
        self._adopted.clear()
        if shelf is not None:
            await shelf.close()
        if launcher is not None:
            await launcher.close()

    def _opened(self) -> Launcher:
        if self._launcher is None:
            raise StartError("the gvisor runtime is not open")
        return self._launcher

    @contextlib.asynccontextmanager
    async def _taken(self, spec: SandboxSpec) -> AsyncIterator[CreatedContainer]:
        """A created container with the limits of the spec, removed when the block fails.

        Raises `StartError`.
        """
        if self._shelf is None:
            raise StartError("the gvisor runtime is not open")
        if spec.network not in ("none", self._network):
            raise StartError(
                f"the network {spec.network} cannot be had on this worker, which was started with "
                f"{self._network}"
            )
        async with self._shelf.taken(spec.network) as created, _removed_on_error(created):
            created.parts.group.apply(spec.limits)
            yield created


@contextlib.asynccontextmanager
async def _removed_on_error(created: CreatedContainer) -> AsyncIterator[None]:
    try:
        yield
    except BaseException as error:
        await created.remove()
        if isinstance(error, SandboxError) and not isinstance(error, StartError):
            raise StartError(str(error)) from error
        raise


def _usable_build(binary: Path) -> RunscBuild:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise RuntimeUnavailableError("gVisor sandboxes need root on Linux; or use fork")
    try:
        build = identify(binary)
    except UnusableBinaryError as error:
        raise RuntimeUnavailableError(
            f"{error}; install a runsc with infra/gvisor/install"
        ) from error
    if (refusal := build.refusal()) is not None:
        raise RuntimeUnavailableError(refusal)
    return build


def _meta(checkpoint: Checkpoint) -> CheckpointMeta:
    try:
        meta = CheckpointMeta.from_json(dict(checkpoint.meta))
    except ManifestError as error:
        raise CheckpointRefusedError(str(error)) from error
    if meta.runtime != "gvisor":
        raise CheckpointRefusedError(f"it was captured for the {meta.runtime} runtime")
    return meta
