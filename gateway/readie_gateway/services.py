"""What every route works with, composed once."""

from dataclasses import dataclass

from readie_gateway.bucket_view import BucketView
from readie_gateway.catalogues import Catalogues
from readie_gateway.fleet import FleetWatch
from readie_gateway.metrics import Metrics
from readie_gateway.recording import ImportLedger
from readie_gateway.sessions import SessionBook
from readie_gateway.waiting import WaitingBoard
from readie_infra.blobs import BlobStore
from readie_infra.sealing import Seal
from readie_infra.store import DEFAULT_SESSION_IDLE_S, CallStore
from readie_wire.http import PAYLOAD_LIMIT_BYTES, WAIT_WINDOW_S

# A proxy that gives up after the window must see the answer before that.
WINDOW_MARGIN_S = 5.0
QUEUE_LIMIT = 10_000  # queued calls of one token and flavor; more is a loop, or needs more workers


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one gateway. ``exposed``: it is reachable from other machines.

    ``session_idle_s``: without its first call for so long a session ends.
    """

    payload: int = PAYLOAD_LIMIT_BYTES
    queue: int = QUEUE_LIMIT
    wait_window_s: float = WAIT_WINDOW_S - WINDOW_MARGIN_S
    exposed: bool = False
    session_idle_s: float = DEFAULT_SESSION_IDLE_S


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that answers requests.

    ``blobs`` is ``None`` where no store is configured, ``imports`` where none are recorded,
    ``bucket`` where none is followed.
    """

    store: CallStore
    blobs: BlobStore | None
    catalogues: Catalogues
    fleet: FleetWatch
    board: WaitingBoard
    metrics: Metrics
    limits: Limits
    sessions: SessionBook
    seal: Seal | None = None
    imports: ImportLedger | None = None
    bucket: BucketView | None = None
