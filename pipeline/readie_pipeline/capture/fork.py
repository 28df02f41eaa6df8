"""Capture for the fork runtime: nothing is stored, but every import set is tried in a real zygote.

A worker makes its zygotes itself; the generation tells it what to import, and that it can be.
"""

import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from readie_pipeline.capture.capturer import Platform, import_seconds
from readie_pipeline.capture.conditions import Conditions
from readie_pipeline.capture.digests import executor_digest, packages_digest
from readie_pipeline.capture.greeting import time_start
from readie_pipeline.capture.scratch import scratch_folder
from readie_pipeline.errors import CaptureError
from readie_wire.manifest import CheckpointMeta
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxSpec
from readie_worker.sandbox.errors import SandboxError
from readie_worker.sandbox.fork import ForkRuntime

HELLO_DEADLINE_S = 60.0  # far above a cold start on a busy machine
_LIMITS = Limits(memory=64 << 30)  # nothing runs in these sandboxes but the executor itself


class ForkCapturer:
    """See `readie_pipeline.capture.capturer.Capturer`. ``import_deadline`` in seconds.

    ``environment`` is what the zygotes are started from, filtered by the runtime.
    """

    runtime = "fork"
    size_matters = False
    stores = False

    def __init__(self, import_deadline: float, environment: Mapping[str, str]) -> None:
        self._runtime = ForkRuntime(
            scratch_folder() / "fork", environment=environment, import_deadline=import_deadline
        )
        self._prefix = f"readie-capture-{secrets.token_hex(4)}"
        self._numbers = count(1)
        self._adopted: dict[str, Checkpoint] = {}

    async def open(self) -> None:
        try:
            await self._runtime.open()
        except SandboxError as error:
            raise CaptureError(str(error)) from error

    async def capture(
        self, checkpoint_id: str, imports: Sequence[str], folder: Path
    ) -> CheckpointMeta:
        report = await self._adopt(checkpoint_id, imports, folder)
        return CheckpointMeta(
            id=checkpoint_id,
            runtime=self.runtime,
            imports=tuple(imports),
            import_environment=tuple(report.get("environment", ())),
            gate=tuple(report.get("warnings", ())),
            import_s=import_seconds(report),
        )

    async def prove(self, meta: CheckpointMeta, folder: Path) -> None:
        await self._adopt(meta.id, meta.imports, folder)
        await self.restore_seconds(meta.id, folder)

    async def restore_seconds(self, checkpoint_id: str, folder: Path) -> float:
        checkpoint = self._adopted[checkpoint_id]
        greeting = await time_start(
            lambda: self._runtime.restore(checkpoint, self._spec()), HELLO_DEADLINE_S
        )
        return greeting.seconds

    async def cold_seconds(self) -> float:
        greeting = await time_start(lambda: self._runtime.cold(self._spec()), HELLO_DEADLINE_S)
        return greeting.seconds

    def platform(self) -> Platform:
        return Platform(
            python=platform.python_version(),
            python_path=sys.executable,
            executor_command=(sys.executable, "-I", "-m", "readie_executor"),
        )

    def conditions(self) -> Conditions:
        return Conditions(
            {
                "runtime": self.runtime,
                "Python": platform.python_version(),
                "executor": executor_digest(),
                "set of packages": packages_digest(),
            }
        )

    async def close(self) -> None:
        await self._runtime.close()

    async def _adopt(
        self, checkpoint_id: str, imports: Sequence[str], folder: Path
    ) -> Mapping[str, Any]:
        """What its zygote reports. Zygotes stay until `close`, all at once, as a worker has them."""
        checkpoint = Checkpoint(f"capture/{checkpoint_id}", imports, folder)
        try:
            await self._runtime.adopt(checkpoint)
        except SandboxError as error:
            raise CaptureError(str(error)) from error
        self._adopted[checkpoint_id] = checkpoint
        return self._runtime.report(checkpoint.key)

    def _spec(self) -> SandboxSpec:
        return SandboxSpec(f"{self._prefix}-{next(self._numbers)}", _LIMITS, network="host")
