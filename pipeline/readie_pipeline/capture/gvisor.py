"""Capture for the gVisor runtime: the live process is saved to disk, and its restore is timed."""

import json
import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from readie_pipeline.capture.capturer import Platform, import_seconds
from readie_pipeline.capture.conditions import Conditions
from readie_pipeline.capture.greeting import time_start
from readie_pipeline.capture.preflight import require_machine
from readie_pipeline.capture.scratch import scratch_folder
from readie_pipeline.errors import CaptureError
from readie_wire.manifest import CheckpointMeta, dump_meta
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxSpec
from readie_worker.sandbox.errors import SandboxError
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime

DEADLINE_S = 120.0  # for one start; far above a cold start on a busy machine
_LIMITS = Limits(
    memory=64 << 30, pids=4096
)  # what an import may take; the machine's own limit rules


class GVisorCapturer:
    """See `readie_pipeline.capture.capturer.Capturer`. ``import_deadline`` in seconds.

    ``runsc`` is the binary; ``environment`` is filtered by the runtime.
    """

    runtime = "gvisor"
    size_matters = True
    stores = True

    def __init__(self, runsc: Path, import_deadline: float, environment: Mapping[str, str]) -> None:
        self._import_deadline = import_deadline
        # Opening it removes the sandboxes of captures that were killed in the same folder.
        self._runtime = GVisorRuntime(
            scratch_folder() / "gvisor", runsc=runsc, network="none", environment=environment
        )
        self._prefix = f"readie-capture-{secrets.token_hex(4)}"
        self._numbers = count(1)

    async def open(self) -> None:
        require_machine(platform.system(), platform.machine())
        try:
            await self._runtime.open()
        except SandboxError as error:
            raise CaptureError(str(error)) from error

    async def capture(
        self, checkpoint_id: str, imports: Sequence[str], folder: Path
    ) -> CheckpointMeta:
        try:
            saved = await self._runtime.capture(
                imports, folder, limits=_LIMITS, deadline=self._import_deadline
            )
        except SandboxError as error:
            raise CaptureError(str(error)) from error
        here = self._runtime.here
        return CheckpointMeta(
            id=checkpoint_id,
            runtime=self.runtime,
            imports=tuple(imports),
            bytes_on_disk=saved.bytes_on_disk,
            import_environment=tuple(saved.report.get("environment", ())),
            gvisor_version=here.gvisor_version,
            fingerprint=here.fingerprint,
            rootfs_digest=here.rootfs_digest,
            cpu_features=sorted(here.cpu_features),
            image_files=tuple(saved.image_files),
            mapped_files=tuple(saved.mapped_files),
            gate=tuple(saved.report.get("warnings", ())),
            import_s=import_seconds(saved.report),
        )

    async def prove(self, meta: CheckpointMeta, folder: Path) -> None:
        facts = json.loads(dump_meta(meta))
        checkpoint = Checkpoint(f"capture/{meta.id}", meta.imports, folder, facts)
        try:
            await self._runtime.adopt(checkpoint)
        except SandboxError as error:
            raise CaptureError(str(error)) from error
        await self._runtime.discard(checkpoint.key)
        await self.restore_seconds(meta.id, folder)

    async def restore_seconds(self, checkpoint_id: str, folder: Path) -> float:
        try:
            return await self._runtime.measure(folder, limits=_LIMITS, deadline=DEADLINE_S)
        except SandboxError as error:
            raise CaptureError(f"its restore failed: {error}") from error

    async def cold_seconds(self) -> float:
        spec = SandboxSpec(f"{self._prefix}-{next(self._numbers)}", _LIMITS, network="none")
        return (await time_start(lambda: self._runtime.cold(spec), DEADLINE_S)).seconds

    def platform(self) -> Platform:
        facts = self._runtime.facts()
        return Platform(
            python=platform.python_version(),
            python_path=sys.executable,
            executor_command=tuple(facts["command"]),
            rootfs_digest=self._runtime.here.rootfs_digest,
            gvisor=facts,
        )

    def conditions(self) -> Conditions:
        here = self._runtime.here
        facts = {
            "runtime": self.runtime,
            "gVisor": here.gvisor_version,
            "sandbox spec": here.fingerprint,
            "root filesystem": here.rootfs_digest,
        }
        return Conditions(facts, sorted(here.cpu_features))

    async def close(self) -> None:
        await self._runtime.close()
