"""The gVisor runtime with a real runsc, for tests of sandboxes and of all that uses them."""

import itertools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from readie_wire.manifest import CheckpointMeta, dump_meta
from readie_worker.sandbox.api import Checkpoint, Limits, Network
from readie_worker.sandbox.gvisor.builds import identify
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime
from readie_worker.sandbox.selftest import find_runsc
from support.interpreters import interpreter_with
from support.requirements import require_part

CAPTURE_DEADLINE_S = 100.0
CAPTURE_LIMITS = Limits(memory=4 << 30)
_numbers = itertools.count(1)


def real_runsc() -> Path:
    """A `runsc` that this user may use, or the test does not go on."""
    usable = sys.platform == "linux" and os.geteuid() == 0
    found = find_runsc() if usable else None
    version = identify(found.resolve()).version if found is not None else None
    require_part("runsc", version, "infra/gvisor/install, as root on Linux")
    assert found is not None
    return found.resolve()


def sandboxes(folder: Path) -> list[int]:
    """Processes of sandboxes whose files lie in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if words.startswith(b"runsc-sandbox") and bytes(folder) in words:
            found.append(int(process.name))
    return found


class FlakyRunsc:
    """A `runsc` that does what the file ``orders`` in its folder says when asked to restore."""

    def __init__(self, folder: Path, runsc: Path) -> None:
        self.path = folder / "runsc"
        self._orders = folder / "orders"
        self.path.write_text(
            "#!/bin/sh\n"
            f'case " $* " in *" restore "*) [ -f {self._orders} ] && . {self._orders};; esac\n'
            f'exec {runsc} "$@"\n'
        )
        self.path.chmod(0o755)

    def order(self, script: str | None) -> None:
        if script is None:
            self._orders.unlink()
        else:
            self._orders.write_text(script)


class GVisorKit:
    """See `support.sandbox_kits.Kit`."""

    def __init__(
        self,
        folder: Path,
        modules: Mapping[str, str],
        *,
        network: Network = "none",
        ahead: int = 0,
        runsc: Path | None = None,
        start_deadline: float = 60.0,
    ) -> None:
        python = interpreter_with(folder / "python", modules) if modules else Path(sys.executable)
        self.site_packages = folder / "python"
        self.checkpoints = folder / "checkpoints"
        self.runtime = GVisorRuntime(
            folder / "run",
            runsc=runsc or real_runsc(),
            python=python,
            network=network,
            ahead=ahead,
            start_deadline=start_deadline,
        )

    async def checkpoint(self, *imports: str) -> Checkpoint:
        """Capture one, as the pipeline does, and adopt it."""
        checkpoint = await self.capture(*imports)
        await self.runtime.adopt(checkpoint)
        return checkpoint

    async def capture(self, *imports: str) -> Checkpoint:
        checkpoint_id = f"checkpoint_{next(_numbers)}"
        folder = self.checkpoints / checkpoint_id
        folder.mkdir(parents=True)
        saved = await self.runtime.capture(
            imports, folder, limits=CAPTURE_LIMITS, deadline=CAPTURE_DEADLINE_S
        )
        here = self.runtime.here
        meta = CheckpointMeta(
            id=checkpoint_id,
            runtime="gvisor",
            imports=imports,
            bytes_on_disk=saved.bytes_on_disk,
            gvisor_version=here.gvisor_version,
            fingerprint=here.fingerprint,
            rootfs_digest=here.rootfs_digest,
            cpu_features=sorted(here.cpu_features),
            image_files=saved.image_files,
            mapped_files=saved.mapped_files,
        )
        written = dump_meta(meta)
        (folder / "meta.json").write_bytes(written)
        return Checkpoint(f"generation/{checkpoint_id}", imports, folder, json.loads(written))
