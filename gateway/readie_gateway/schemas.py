"""The shape of what the API answers, for its schema. `documents` and the routes write it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from readie_wire.envelope import MAX_IMPORTS
from readie_wire.holdings import GenerationState, HeldCheckpoint
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, Receipt
from readie_wire.publication import PublishedFile
from readie_wire.records import WorkerRecord


class LogLine(BaseModel):
    """One piece of what the call printed."""

    stream: Literal["stdout", "stderr"]
    text: str
    seq: int


class CallOutcome(BaseModel):
    """How a call ended. A function that raises is ``ok: false`` and no problem of the service."""

    call_id: str
    ok: bool
    state: State
    encoding: Encoding | None = None
    value: Any = Field(None, description="The result, where its encoding is json.")
    value_base64: str | None = Field(None, description="The result's bytes otherwise.")
    error: ErrorInfo | None
    logs: list[LogLine]
    receipt: Receipt


class Pending(BaseModel):
    """A call that has not ended, and where to ask again."""

    call_id: str
    state: State
    reason: str | None = None
    location: str | None = None
    result: str | None = None
    events: str | None = None


class ChoiceView(BaseModel):
    """What pricing picked; no checkpoint is a cold start. Times in seconds.

    Prices leave out what any start costs; the starts are the times that they are expected to take.
    """

    generation: str | None
    checkpoint: str | None
    pinned: bool
    predicted_s: float | None
    cold_s: float | None
    reason: str
    predicted_start_s: float | None
    cold_start_s: float | None


class CallView(BaseModel):
    """A call without its result. Times in milliseconds since the epoch."""

    call_id: str
    state: State
    function: str
    kind: str
    flavor: str
    choice: ChoiceView
    options: dict[str, Any]
    session: str | None
    waited: bool
    cancel: str | None
    attempt: int
    worker_id: str | None
    created_ms: int
    taken_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    ok: bool | None
    error: ErrorInfo | None
    receipt: Receipt | None


class CallList(BaseModel):
    calls: list[CallView]


class SessionBody(BaseModel):
    """What a session is opened with: options of its sandbox, for all its calls."""

    model_config = ConfigDict(extra="forbid", strict=True)

    options: dict[str, Any] = Field(default_factory=dict)


class SessionView(BaseModel):
    """A session. Times in milliseconds since the epoch."""

    session_id: str
    state: Literal["open", "ended"]
    reason: str | None = Field(description="Why it has ended.")
    flavor: str
    options: dict[str, Any]
    worker_id: str | None = Field(description="Where its sandbox is.")
    running: str | None = Field(description="The call that runs, or comes next.")
    waiting: int
    served: int
    opened_ms: int | None
    used_ms: int | None
    ended_ms: int | None


class SessionList(BaseModel):
    sessions: list[SessionView]


class DeadLetterView(BaseModel):
    """A parked call. Time in milliseconds since the epoch."""

    call_id: str
    token: str
    flavor: str
    function: str
    attempts: int
    reason: str
    last_words: str = Field(description="The end of what it printed.")
    parked_ms: int


class DeadLetterDetail(DeadLetterView):
    call: CallView | None = Field(description="None where its record cannot be read.")


class DeadLetterList(BaseModel):
    dead: list[DeadLetterView]


class Requeued(BaseModel):
    """``call_id`` is the new call, ``requeued`` the parked one that it was."""

    call_id: str
    requeued: str


class Dropped(BaseModel):
    call_id: str
    dropped: bool


class WorkerViews(BaseModel):
    workers: list[WorkerRecord]


class CheckpointView(BaseModel):
    """``items`` counts everything loaded, ``canonical`` names what was imported by name."""

    id: str
    canonical: list[str]
    items: int
    size_mb: float


class CatalogueSummary(BaseModel):
    """``live``: a live worker holds its generation, so calls are priced with it."""

    flavor: str
    path: str
    sha256: str
    alpha: float = Field(description="Seconds per MB.")
    items: int
    generation: str | None
    live: bool


class CatalogueEntry(CatalogueSummary):
    checkpoints: int


class CatalogueView(CatalogueSummary):
    checkpoints: list[CheckpointView]
    distributions: dict[str, str]


class SkippedFile(BaseModel):
    path: str
    reason: str


class CatalogueViews(BaseModel):
    catalogues: list[CatalogueEntry]
    skipped: list[SkippedFile]


class BucketState(BaseModel):
    url: str
    error: str = Field(description="Why it could not be read when it was looked at last.")


class PublishedPointer(BaseModel):
    """What is current for the workers of one flavor and root filesystem."""

    flavor: str
    rootfs: str
    current: str
    previous: str | None = Field(description="What a rollback brings back.")
    published: str = Field(description="yyyymmddThhmmss in UTC.")
    publication: str


class Arrival(BaseModel):
    """A worker that fetches a generation: ``bytes`` of it are there, of so many."""

    worker: str
    bytes: int
    of: int


class GenerationSummary(BaseModel):
    """``workers`` serve it; ``priced``: calls can be priced for it; ``current``: they are by default.

    ``role`` is current or previous in the bucket, and null for what no pointer names.
    """

    generation: str
    catalogue_sha256: str
    python: str
    runtime: str
    startup_cold_s: float
    startup_restore_s: float
    startup_per_mb_s: float
    import_factor: float
    import_environment: dict[str, list[str]]
    flavor: str
    rootfs: str | None
    size: int | None = Field(description="Bytes on a worker's disk.")
    captured: int | None = Field(description="Checkpoints in it, restored by a worker or not.")
    role: str | None
    published: str | None
    workers: list[str]
    arriving: list[Arrival]
    priced: bool
    current: bool


class GenerationView(GenerationSummary):
    checkpoints: list[str]


class GenerationViews(BaseModel):
    bucket: BucketState | None
    published: list[PublishedPointer]
    generations: list[GenerationView]


class GenerationCheckpoint(BaseModel):
    """``size``: bytes of its files; ``digest`` is equal where its images are."""

    id: str
    imports: list[str] | None
    size_mb: float | None = Field(description="Memory it adds.")
    size: int | None
    digest: str | None


class WorkerHolding(BaseModel):
    """What one worker has of it; ``checkpoints`` by id."""

    boot: str
    host: str
    generation: str
    state: GenerationState
    checkpoints: dict[str, HeldCheckpoint]


class GenerationDetail(GenerationSummary):
    checkpoints: list[GenerationCheckpoint]
    holding: list[WorkerHolding]
    distributions: dict[str, str] | None = Field(description="Of its root filesystem.")
    files: list[PublishedFile] | None
    error: str = Field(description="Why the bucket, or the catalogue in it, could not be read.")


class Announced(BaseModel):
    announced: bool
    workers: int = Field(description="Live workers that follow a bucket.")


class ExplainBody(BaseModel):
    """What to price: modules by name, or the source that imports them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    imports: list[str] = Field(default_factory=list, max_length=MAX_IMPORTS)
    modules: list[str] = Field(
        default_factory=list,
        max_length=MAX_IMPORTS,
        description="The caller's own modules that would travel with the call.",
    )
    source: str | None = Field(None, description="Its imports are added.")
    options: dict[str, Any] = Field(default_factory=dict)


class QuoteView(BaseModel):
    """The price of one start and the time it takes, in seconds; no checkpoint is the cold start."""

    checkpoint: str | None
    refused: str | None = Field(description="Why it may not serve this call.")
    size_mb: float
    size_cost_s: float = Field(description="alpha times the size.")
    missing_s: float = Field(description="Load times of what it lacks.")
    total_s: float = Field(description="The price: the sum of both.")
    missing: list[str] = Field(description="What it lacks, the slowest first.")
    missing_count: int
    start_s: float = Field(description="The time it is expected to take: the sum of these three.")
    fixed_s: float = Field(description="What any such start takes.")
    size_s: float = Field(description="size_cost_s, and 0 where nothing is read from disk.")
    imports_s: float = Field(description="missing_s, times the import factor.")


class SightingView(BaseModel):
    """Where a module was seen first."""

    name: str
    how: str = Field(description="The kind of statement or reference.")
    function: str = Field(description="Empty outside of functions.")
    line: int
    file: str


class ItemView(BaseModel):
    """An item of the catalogue that the call needs; ``version`` is that of its distribution."""

    name: str
    distribution: str
    version: str
    load_time_s: float
    size_mb: float


class StartupView(BaseModel):
    """What any start takes, in seconds."""

    cold: float
    restore: float
    import_factor: float = Field(description="How many times as long as load times imports take.")
    per_mb: float = Field(description="Of a forked checkpoint's size, which no price tells.")


class Explanation(BaseModel):
    flavor: str
    choice: ChoiceView
    imports: list[str]
    seen: list[SightingView] = Field(description="Where the source imports them.")
    notes: list[str] = Field(description="What may be missing from the imports, and why.")
    generation: str | None
    runtime: str | None
    alpha: float | None = Field(description="Seconds per MB.")
    startup: StartupView | None
    matched: dict[str, str] = Field(description="Import → the catalogue's item for it.")
    unknown: list[str] = Field(description="Imports that are not priced.")
    items: list[ItemView] = Field(description="What the call needs, the slowest first.")
    items_count: int
    quotes: list[QuoteView]


class Check(BaseModel):
    ok: bool
    detail: str


class Readiness(BaseModel):
    ready: bool
    down: list[str]
    checks: dict[str, Check]
    warnings: list[str]
