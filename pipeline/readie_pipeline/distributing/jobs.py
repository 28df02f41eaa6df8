"""What an RQ worker runs. Arguments and results are JSON: nothing from the queue is unpickled."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Queue, Worker
from rq.serializers import JSONSerializer

from readie_pipeline.errors import QueueError
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.parentage import die_with_parent
from readie_pipeline.measure.probing import ProbeRequest, probe

QUEUE_NAME = "readie-pipeline"
HEARTBEAT_S = 5  # how often a worker says that its job is alive


@dataclass(frozen=True, slots=True)
class Station:
    """What this worker measures with. Taken once, before any job: every job is a fork of it."""

    interpreter: Interpreter
    fingerprint: str
    worker: int  # pid


_station: list[Station] = []


def work(connection: Redis, python: Path, wrapper: Sequence[str], *, burst: bool) -> None:
    """Take jobs until told to stop; with ``burst`` until the queue is empty."""
    with tempfile.TemporaryDirectory(prefix="readie-worker-") as home:
        interpreter = Interpreter(Path(home), python, wrapper)
        _station[:] = [Station(interpreter, Inventory.take(interpreter).fingerprint(), os.getpid())]
        worker = Worker(
            [queue_on(connection)],
            connection=connection,
            serializer=JSONSerializer,
            job_monitoring_interval=HEARTBEAT_S,
        )
        worker.work(burst=burst, logging_level="WARNING")


def queue_on(connection: Redis) -> Queue:
    return Queue(QUEUE_NAME, connection=connection, serializer=JSONSerializer)


def run_probe(
    module: str, before: Sequence[str], repeat: int, fingerprint: str, timeout: float
) -> Mapping[str, Any]:
    """One probe. Raises `QueueError` when this worker has other packages than the coordinator."""
    station = _station[0]
    die_with_parent(station.worker)
    if station.fingerprint != fingerprint:
        raise QueueError(
            f"{station.interpreter.python} has other packages than where the run was started"
        )
    return probe(station.interpreter, ProbeRequest(module, before, repeat), timeout)
