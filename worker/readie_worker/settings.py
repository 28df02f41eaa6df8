"""What the environment tells a worker. Only ``__main__`` reads it."""

from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field

from readie_infra.settings import ServerSettings
from readie_worker.sandbox.api import Network


class WorkerSettings(ServerSettings):
    """Names without an alias are read with the prefix ``READIE_``. Sizes in bytes, times in seconds."""

    flavor: Literal["cpu", "gpu"] = Field(
        default="cpu", validation_alias="WORKER_FLAVOR", description="What kind of machine this is"
    )
    gpu_total: int = Field(
        default=0,
        ge=0,
        validation_alias="WORKER_GPU_TOTAL",
        description="GPU memory on offer, in bytes",
    )
    runtime: Literal["auto", "gvisor", "fork"] = Field(
        default="auto", description="auto takes gvisor where it works here, else fork"
    )
    generations_dir: Path | None = Field(
        default=None, description="A generation, or a folder of {flavor}/ generations"
    )
    generations_later: bool = Field(
        default=False,
        description="A folder without a generation is no fault: one will be there later",
    )
    artifacts_dir: Path | None = Field(
        default=None,
        validation_alias="ARTIFACTS_DIR",
        description="The same, as images name it; READIE_GENERATIONS_DIR comes first",
    )
    bucket_keys: str = Field(
        default="",
        description="Public keys that the bucket's generations must be signed by, comma-separated",
    )
    bucket_unsigned: bool = Field(
        default=False, description="Serve generations from the bucket that nobody has signed"
    )
    bucket_poll: float = Field(
        default=10.0, gt=0, le=3600, description="Seconds between two looks at the bucket"
    )
    disk_budget: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of disk for the bucket's generations; what the disk can spare if not given",
    )
    prefetch_budget: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of checkpoints to read into the page cache ahead; a quarter of the memory if not given",
    )
    strict_compat: bool = Field(
        default=True,
        validation_alias="CHECKPOINT_STRICT_COMPAT",
        description="Refuse checkpoints of another patch version of Python",
    )
    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("readie"),
        description="Where sandboxes have their folders, and generations of a bucket their files",
    )
    slots: int | None = Field(
        default=None, ge=1, le=1024, description="Calls at a time; as many as cores when not given"
    )
    memory_total: int | None = Field(
        default=None,
        ge=64 << 20,
        description="Memory on offer; what the machine allows when not given",
    )
    network: Network | None = Field(
        default=None,
        description="What sandboxes may reach; sandbox where the runtime isolates, else host",
    )
    allow_unsandboxed: bool = Field(
        default=False,
        description="Let a runtime without isolation take calls from beyond this machine",
    )
    spares: int = Field(
        default=2, ge=0, le=64, description="Sandboxes kept ready for each checkpoint in demand"
    )
    beat: float = Field(default=3.0, gt=0, le=60, description="Seconds between signs of life")
    start_timeout: float = Field(
        default=25.0,
        gt=0,
        le=50,
        description="For a sandbox to come up; two of these must fit into a lease of 60 s",
    )
    drain_grace: float = Field(
        default=30.0, ge=0, description="After SIGTERM, for the calls that run to end by themselves"
    )
    outcome_patience: float = Field(
        default=120.0, ge=0, description="How long an outcome waits for Redis to come back"
    )
    session_idle: float = Field(
        default=300.0,
        gt=0,
        validation_alias="SANDBOX_IDLE_TTL",
        description="After so long without a call a session ends, and its sandbox with it",
    )
    result_limit: int = Field(default=1 << 30, ge=1, description="The largest result, in bytes")

    @property
    def artifacts(self) -> Path | None:
        return self.generations_dir or self.artifacts_dir
