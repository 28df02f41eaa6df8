"""Capture for the gVisor runtime: the live process is saved to disk, and its restore is timed."""

import platform
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from readie_pipeline.capture.capturer import Captured, Platform
from readie_pipeline.capture.greeting import time_start
from readie_pipeline.errors import CaptureError
from readie_worker.sandbox.api import Limits, SandboxSpec
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

    def __init__(self, runsc: Path, import_deadline: float, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="readie-gvisor-")
        self._import_deadline = import_deadline
        self._runtime = GVisorRuntime(
            Path(self._folder.name), runsc=runsc, network="none", environment=environment
        )
        self._prefix = f"readie-capture-{secrets.token_hex(4)}"
        self._numbers = count(1)

    async def open(self) -> None:
        try:
            await self._runtime.open()
        except SandboxError as error:
            raise CaptureError(str(error)) from error

    async def capture(self, checkpoint_id: str, imports: Sequence[str], folder: Path) -> Captured:
        try:
            saved = await self._runtime.capture(
                imports, folder, limits=_LIMITS, deadline=self._import_deadline
            )
        except SandboxError as error:
            raise CaptureError(str(error)) from error
        here = self._runtime.here
        return Captured(
            import_environment=tuple(saved.report.get("environment", ())),
            bytes_on_disk=saved.bytes_on_disk,
            gvisor_version=here.gvisor_version,
            fingerprint=here.fingerprint,
            cpu_features=sorted(here.cpu_features),
            image_files=saved.image_files,
            mapped_files=saved.mapped_files,
            gate=tuple(saved.report.get("warnings", ())),
        )

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

    async def close(self) -> None:
        await self._runtime.close()
        self._folder.cleanup()
