"""The folder of a plan: what `plan` writes for `build`, and for whoever builds a root filesystem."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from readie_pipeline.errors import OutputError, PlanError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, dump_plan, load_plan
from readie_pipeline.plan.requirements import requirements_of
from readie_pipeline.workspace import read_input, write_whole
from readie_wire.catalogue import canonical_distribution
from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.launcher import shape_of
from readie_worker.sandbox.gvisor.ocispec import fingerprint
from readie_worker.sandbox.gvisor.rootfs import describe_host_rootfs

# Where the build of a root filesystem lists the distributions that it could not install.
SKIPPED_IN_ROOTFS = Path("etc/readie-rootfs-skipped.txt")

_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class SpecFingerprint:
    """The sandbox that a plan is captured in: its shape, and the root filesystem's digest (hex)."""

    fingerprint: str
    rootfs_digest: str

    @classmethod
    def here(cls) -> "SpecFingerprint | None":
        """Of this interpreter on this machine; ``None`` where no gVisor sandbox could run it."""
        try:
            rootfs = describe_host_rootfs(Path("/"), Path(sys.executable))
        except (RuntimeUnavailableError, OSError):
            return None
        return cls(fingerprint(shape_of(rootfs)), rootfs.digest)

    def difference(self, other: "SpecFingerprint") -> str | None:
        """What has changed in ``other``, in words."""
        if self.fingerprint != other.fingerprint:
            return "the sandbox has another shape (spec fingerprint)"
        if self.rootfs_digest != other.rootfs_digest:
            return "the root filesystem has changed (interpreter, packages or executor)"
        return None


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """``checkpoints.json``, ``spec-fingerprint.json``, ``rootfs-requirements.txt`` and, of a root
    filesystem that lacks some of these distributions, ``rootfs-skipped.txt``."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "checkpoints.json"

    @property
    def spec(self) -> Path:
        return self.path / "spec-fingerprint.json"

    @property
    def requirements(self) -> Path:
        return self.path / "rootfs-requirements.txt"

    @property
    def skipped(self) -> Path:
        return self.path / "rootfs-skipped.txt"

    def write(self, plan: Plan, metadata: Metadata) -> None:
        """Replace what the folder holds of an earlier plan. Raises `OutputError`."""
        write_whole(self.plan, dump_plan(plan))
        lines = "".join(f"{line}\n" for line in requirements_of(plan, metadata))
        write_whole(self.requirements, lines.encode())
        if (spec := SpecFingerprint.here()) is not None:
            write_whole(self.spec, json.dumps(asdict(spec), indent=1).encode() + b"\n")
        else:
            self.spec.unlink(missing_ok=True)

    def read(self) -> Plan:
        """Raises `MissingInputError` and `PlanError`."""
        return load_plan(read_input(self.plan, "readie-pipeline plan"))

    def read_spec(self) -> SpecFingerprint | None:
        """What the plan was made for; ``None`` where that was not written. Raises `PlanError`."""
        try:
            return SpecFingerprint(**json.loads(self.spec.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise PlanError(f"{self.spec} cannot be read: {error}") from error

    def take_skipped(self, rootfs: Path) -> Sequence[str]:
        """Copy the list of the root filesystem's build, if it has one; the distributions in it.

        Raises `OutputError`.
        """
        source = rootfs / SKIPPED_IN_ROOTFS
        try:
            data = source.read_bytes()
        except FileNotFoundError:
            self.skipped.unlink(missing_ok=True)
            return ()
        except OSError as error:
            raise OutputError(f"{source} cannot be read: {error.strerror}") from error
        write_whole(self.skipped, data)
        found = map(_DISTRIBUTION.match, data.decode("utf-8", "replace").splitlines())
        return tuple(canonical_distribution(match[0]) for match in found if match)
