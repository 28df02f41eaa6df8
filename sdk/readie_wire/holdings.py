"""What a worker has of each generation, in which tier, and what it refuses, as it tells the fleet.

A checkpoint's files are in the bucket, on the worker's disk, or on its disk and in its page cache
too. Sizes are bytes of files as they are on a disk.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self


class Tier(StrEnum):
    """The fastest place that all files of a checkpoint are in."""

    REMOTE = "remote"
    DISK = "disk"
    MEMORY = "memory"

    @classmethod
    def _missing_(cls, value: object) -> "Tier":
        return cls.REMOTE  # a word of a newer worker


class RefusalKind(StrEnum):
    """Why a checkpoint is not restored on a worker, as a word to count by; sentences differ."""

    ABSENT = "absent"  # not on the disk, or not yet
    DISK = "disk"  # no room is left for it
    MEMORY = "memory"  # no memory is left to keep it ready
    RUNTIME = "runtime"  # captured for another runtime
    PYTHON = "python"  # captured with another Python
    MACHINE = "machine"  # the runtime compared it with this machine, and refuses it
    DAMAGED = "damaged"  # its files cannot be read
    FAILING = "failing"  # it could be restored, and failed too often in a row
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "RefusalKind":
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a checkpoint is not restored; ``reason`` is a sentence for people."""

    kind: RefusalKind
    reason: str

    def __str__(self) -> str:
        return self.reason


class GenerationState(StrEnum):
    SERVED = "served"
    ARRIVING = "arriving"
    KEPT = "kept"  # on the disk, for a rollback or because its sandboxes still run

    @classmethod
    def _missing_(cls, value: object) -> "GenerationState":
        return cls.KEPT


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """One checkpoint on one worker.

    ``cached`` are the bytes of its files that the page cache had when it was last looked at, None
    where nobody looked. ``ready``: the runtime can start it, from a live process or from its files.
    """

    size: int
    tier: Tier
    ready: bool = False
    cached: int | None = None
    refusal: Refusal | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        refusal = value.get("refusal")
        return cls(
            size=int(value["size"]),
            tier=Tier(value["tier"]),
            ready=bool(value.get("ready", False)),
            cached=value.get("cached"),
            refusal=Refusal(RefusalKind(refusal["kind"]), refusal["reason"]) if refusal else None,
        )


@dataclass(frozen=True, slots=True)
class HeldGeneration:
    generation: str
    state: GenerationState
    checkpoints: Mapping[str, HeldCheckpoint] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            str(value["generation"]),
            GenerationState(value["state"]),
            {
                name: HeldCheckpoint.from_json(one)
                for name, one in value.get("checkpoints", {}).items()
            },
        )


@dataclass(frozen=True, slots=True)
class SyncState:
    """How a worker follows its bucket. What counts, counts since the worker's start.

    ``arriving`` is the generation under way, of whose ``arriving_bytes`` ``arrived_bytes`` are here.
    ``fetched_bytes`` came from the bucket, counted after expansion; ``seconds`` were spent in
    ``syncs`` that brought what there was room for; ``failures`` are looks and syncs that failed.
    ``leads``: of the workers that share this disk, this one fetches.
    """

    leads: bool = False
    arriving: str = ""
    arriving_bytes: int = 0
    arrived_bytes: int = 0
    fetched_bytes: int = 0
    seconds: float = 0.0
    syncs: int = 0
    failures: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """Everything that a worker tells about its generations.

    ``swaps``: how often, since its start, it began to serve another one. ``sync`` is None where no
    bucket is followed. ``problem``: why the generation that came last is not served.
    """

    generations: tuple[HeldGeneration, ...] = ()
    sync: SyncState | None = None
    swaps: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` and `TypeError`."""
        sync = value.get("sync")
        known = SyncState.__dataclass_fields__
        return cls(
            tuple(HeldGeneration.from_json(one) for one in value.get("generations", ())),
            SyncState(**{name: sync[name] for name in known if name in sync}) if sync else None,
            int(value.get("swaps", 0)),
            str(value.get("problem", "")),
        )
