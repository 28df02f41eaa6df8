"""Which queues there are, and what every job on them has in common."""

from typing import Final

from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

PROBES: Final = "readie-pipeline"  # of `readie_pipeline.distributing.jobs.run_probe`
KEPT_S: Final = 3_600  # results, failures, and jobs that nobody waits for any more
HEARTBEAT_S: Final = 1  # how often a worker says that its job is alive
LOST_AFTER_S: Final = 15.0  # without such a word the job is given to another worker


def captures_of(runtime: str) -> str:
    """The queue of `run_capture`: only workers that have the runtime listen to it."""
    return f"readie-pipeline-capture-{runtime}"


def queue_on(connection: Redis, name: str) -> Queue:
    """Arguments and results are JSON: nothing from the queue is unpickled."""
    return Queue(name, connection=connection, serializer=JSONSerializer)
