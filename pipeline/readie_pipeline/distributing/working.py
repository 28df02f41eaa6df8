"""The loop of a worker."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from rq import Worker
from rq.serializers import JSONSerializer

from readie_pipeline.distributing.jobs import Station, Workshop, take_station
from readie_pipeline.distributing.queues import HEARTBEAT_S, PROBES, captures_of, queue_on
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory

_SILENCE_S = 60  # of an idle worker; after twice that its registration is gone


def work(
    connection: Redis,
    python: Path,
    wrapper: Sequence[str],
    workshop: Workshop | None,
    *,
    burst: bool,
) -> None:
    """Take jobs until told to stop; with ``burst`` until the queues are empty."""
    queues = [PROBES]
    if workshop is not None:
        queues.append(captures_of(workshop.runtime))
    with tempfile.TemporaryDirectory(prefix="readie-worker-", ignore_cleanup_errors=True) as home:
        interpreter = Interpreter(Path(home), python, wrapper)
        fingerprint = Inventory.take(interpreter).fingerprint()
        take_station(Station(interpreter, fingerprint, os.getpid(), workshop))
        worker = Worker(
            [queue_on(connection, name) for name in queues],
            connection=connection,
            serializer=JSONSerializer,
            job_monitoring_interval=HEARTBEAT_S,
            worker_ttl=_SILENCE_S,
        )
        worker.work(burst=burst, logging_level="WARNING")
