"""``manifest.json`` of a generation and ``meta.json`` of each checkpoint in it.

What a worker must know to judge whether it can restore a checkpoint, and what a gateway must know to
price it. Unknown keys are ignored; another version is refused by name.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from readie_wire.fields import Fields, parse_json
from readie_wire.versions import MANIFEST_VERSION, PROTOCOL_VERSION

READABLE_MANIFESTS = frozenset({MANIFEST_VERSION})
RUNTIMES = ("fork", "gvisor")


class ManifestError(ValueError):
    """A manifest or meta file cannot be read; the message names the place and the problem."""


def size_matters(runtime: str) -> bool:
    """Whether size is priced as it was measured: where a checkpoint is read from disk.

    A fork copies the table of its pages, which takes a little longer for a larger process, and
    keeps the planned price, which stands for memory.
    """
    return runtime != "fork"


@dataclass(frozen=True, slots=True)
class StartupSeconds:
    """Measured fixed cost of starting with nothing imported, in seconds.

    ``cold`` is a fresh interpreter until HELLO; ``restore`` is the part of a restore (or a fork)
    that does not depend on the checkpoint's size. ``import_factor`` is how many times as long as the
    catalogue says imports take there. ``per_mb`` is what each MB of a checkpoint adds where the
    catalogue's alpha does not tell that; see `size_matters`.
    """

    cold: float = 0.0
    restore: float = 0.0
    import_factor: float = 1.0
    per_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class ManifestCheckpoint:
    """One checkpoint, as far as it concerns others than the runtime that restores it.

    ``import_environment`` are the names of variables that were read while it imported.
    ``planned_saving_s``: seconds that the planner expects it to save over all of its corpus, so
    that what is wanted most can be brought first; 0 where no corpus was planned from.
    """

    id: str
    imports: Sequence[str] = ()
    size_mb: float = 0.0
    import_environment: Sequence[str] = ()
    planned_saving_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """A generation: everything captured for one flavor, from one root filesystem.

    ``created`` is ``yyyymmddThhmmss`` in UTC; ``python`` the full version; ``python_path`` the
    interpreter's path in the root filesystem; digests are hex. ``gvisor`` holds what only that
    runtime compares (versions, flags, mounts, CPU features …), empty for ``fork``. ``nonce`` is
    new in every capture: two of one second are two generations, however alike they are.
    ``planned_alpha`` is what the planner reckoned with, in seconds per MB, 0 where that is not
    known; the catalogue has what was measured.
    """

    flavor: str
    runtime: str
    created: str
    python: str
    catalogue_sha256: str
    checkpoints: Sequence[ManifestCheckpoint]
    python_path: str = ""
    protocol: int = PROTOCOL_VERSION
    executor_command: Sequence[str] = ()
    executor_digest: str = ""
    rootfs: str = "host"
    rootfs_digest: str = ""
    startup_s: StartupSeconds = field(default_factory=StartupSeconds)
    gvisor: Mapping[str, Any] = field(default_factory=dict)
    nonce: str = ""
    planned_alpha: float = 0.0
    generation: str = ""
    version: int = MANIFEST_VERSION

    def sealed(self) -> Self:
        """The same manifest with ``generation`` derived from ``created`` and the content."""
        content = {key: value for key, value in self.to_json().items() if key != "generation"}
        digest = hashlib.sha256(_canonical(content)).hexdigest()
        return replace(self, generation=f"{self.created}-{digest[:8]}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises `ManifestError`."""
        read = Fields(value, "manifest", ManifestError)
        read.check_version(READABLE_MANIFESTS)
        runtime = read.text("runtime")
        if runtime not in RUNTIMES:
            choices = ", ".join(RUNTIMES)
            raise ManifestError(f"manifest.runtime is {runtime!r}; choose one of {choices}")
        startup = read.part("startup_s")
        return cls(
            flavor=read.text("flavor"),
            runtime=runtime,
            created=read.text("created"),
            python=read.text("python"),
            catalogue_sha256=read.text("catalogue_sha256"),
            checkpoints=tuple(
                ManifestCheckpoint(
                    id=entry.text("id"),
                    imports=entry.texts("imports"),
                    size_mb=entry.number("size_mb"),
                    import_environment=entry.texts("import_environment"),
                    planned_saving_s=entry.number("planned_saving_s"),
                )
                for entry in read.parts("checkpoints")
            ),
            python_path=read.text("python_path", ""),
            protocol=read.whole("protocol"),
            executor_command=read.texts("executor_command"),
            executor_digest=read.text("executor_digest", ""),
            rootfs=read.text("rootfs", "host"),
            rootfs_digest=read.text("rootfs_digest", ""),
            startup_s=StartupSeconds(
                startup.number("cold"),
                startup.number("restore"),
                startup.number("import_factor") or 1.0,
                startup.number("per_mb"),
            ),
            gvisor=read.object("gvisor"),
            nonce=read.text("nonce", ""),
            planned_alpha=read.number("planned_alpha"),
            generation=read.text("generation", ""),
        )

    def checkpoint(self, checkpoint_id: str) -> ManifestCheckpoint | None:
        return next((one for one in self.checkpoints if one.id == checkpoint_id), None)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file that the process had mapped at capture: a restore maps it again by its path.

    The files of the image itself are told the same way, with their names as paths.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointMeta:
    """One checkpoint, for the runtime that restores it: ``meta.json`` beside its image files.

    ``distributions`` are those loaded, with versions; ``bytes_on_disk`` counts the ``image_files``;
    ``import_s`` is what its imports took when it was captured; ``restore_s`` is the measured restore,
    ``None`` when not measured. ``gate`` are the safety gate's remarks, one sentence each.
    """

    id: str
    runtime: str
    imports: Sequence[str] = ()
    size_mb: float = 0.0
    bytes_on_disk: int = 0
    restore_s: float | None = None
    import_environment: Sequence[str] = ()
    distributions: Mapping[str, str] = field(default_factory=dict)
    gvisor_version: str = ""
    fingerprint: str = ""
    rootfs_digest: str = ""
    cpu_features: Sequence[str] = ()
    image_files: Sequence[MappedFile] = ()
    mapped_files: Sequence[MappedFile] = ()
    gate: Sequence[str] = ()
    import_s: float = 0.0
    version: int = MANIFEST_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises `ManifestError`."""
        read = Fields(value, "meta", ManifestError)
        read.check_version(READABLE_MANIFESTS)
        return cls(
            id=read.text("id"),
            runtime=read.text("runtime"),
            imports=read.texts("imports"),
            size_mb=read.number("size_mb"),
            bytes_on_disk=read.whole("bytes_on_disk"),
            restore_s=None if read.value.get("restore_s") is None else read.number("restore_s"),
            import_environment=read.texts("import_environment"),
            distributions=read.object("distributions"),
            gvisor_version=read.text("gvisor_version", ""),
            fingerprint=read.text("fingerprint", ""),
            rootfs_digest=read.text("rootfs_digest", ""),
            cpu_features=read.texts("cpu_features"),
            image_files=_files(read, "image_files"),
            mapped_files=_files(read, "mapped_files"),
            gate=read.texts("gate"),
            import_s=read.number("import_s"),
        )


def load_manifest(data: bytes) -> Manifest:
    """Read the bytes of ``manifest.json``. Raises `ManifestError`."""
    return Manifest.from_json(parse_json(data, "manifest", ManifestError))


def dump_manifest(manifest: Manifest) -> bytes:
    return _pretty(manifest.to_json())


def load_meta(data: bytes) -> CheckpointMeta:
    """Read the bytes of ``meta.json``. Raises `ManifestError`."""
    return CheckpointMeta.from_json(parse_json(data, "meta", ManifestError))


def dump_meta(meta: CheckpointMeta) -> bytes:
    return _pretty(meta.to_json())


def _files(read: Fields, key: str) -> tuple[MappedFile, ...]:
    return tuple(
        MappedFile(entry.text("path"), entry.whole("size"), entry.text("sha256"))
        for entry in read.parts(key)
    )


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
