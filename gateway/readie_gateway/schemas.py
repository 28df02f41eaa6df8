"""The shape of what the API answers, for its schema. `documents` and the routes write it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from readie_wire.envelope import MAX_IMPORTS
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, Receipt
from readie_wire.records import GenerationFacts, WorkerRecord


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
    """What pricing picked; no checkpoint is a cold start. Times in seconds."""

    generation: str | None
    checkpoint: str | None
    pinned: bool
    predicted_s: float | None
    cold_s: float | None
    reason: str


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


class GenerationView(GenerationFacts):
    flavor: str
    workers: list[str]
    priced: bool
    current: bool


class GenerationViews(BaseModel):
    generations: list[GenerationView]


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
    """The price of one start, in seconds; no checkpoint is the cold start."""

    checkpoint: str | None
    refused: str | None = Field(description="Why it may not serve this call.")
    size_mb: float
    size_cost_s: float
    missing_s: float
    total_s: float
    missing: list[str]
    missing_count: int


class Explanation(BaseModel):
    flavor: str
    choice: ChoiceView
    imports: list[str]
    generation: str | None
    alpha: float | None
    matched: dict[str, str] = Field(description="Import → the catalogue's item for it.")
    unknown: list[str] = Field(description="Imports that are not priced.")
    quotes: list[QuoteView]


class Check(BaseModel):
    ok: bool
    detail: str


class Readiness(BaseModel):
    ready: bool
    down: list[str]
    checks: dict[str, Check]
    warnings: list[str]
