"""Probes as jobs of a queue: any number of workers take them, and a dead one's are given again."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, Worker
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from readie_pipeline.distributing.jobs import HEARTBEAT_S, queue_on, run_probe
from readie_pipeline.errors import QueueError
from readie_pipeline.measure.probing import Answer, ProbeRequest, Track

OUTSTANDING = 64  # jobs on the queue at a time
POLL_S = 0.05
SILENT_S = 4 * HEARTBEAT_S  # a job whose worker has said nothing for so long is given again
ALONE_S = 60.0  # how long to wait for a first worker
ATTEMPTS = 3
_KEPT_S = 3_600  # results and failures on the server, seconds
_SLACK_S = 60  # on top of the probe's own time-out, which ends it in all but the worst cases


@dataclass(slots=True)
class _Given:
    request: ProbeRequest
    attempts: int = 1


class QueuedProber:
    """See `readie_pipeline.measure.probing.Prober`. ``timeout`` in seconds for one probe.

    ``fingerprint`` names the packages that workers must have. Raises `QueueError`: no worker, one
    with other packages, or no queue.
    """

    def __init__(self, connection: Redis, fingerprint: str, timeout: float, track: Track) -> None:
        self._connection = connection
        self._queue: Queue = queue_on(connection)
        self._fingerprint = fingerprint
        self._timeout = timeout
        self._track = track

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        steps = iter(self._track([request.module for request in requests], doing))
        waiting = list(reversed(requests))
        given: dict[str, _Given] = {}
        progressed = time.monotonic()
        try:
            while waiting or given:
                while waiting and len(given) < OUTSTANDING:
                    request = waiting.pop()
                    given[self._enqueue(request)] = _Given(request)
                ended = list(self._ended(given))
                for request, answer in ended:
                    progressed = time.monotonic()
                    next(steps, None)
                    yield request, answer
                if not ended:
                    self._require_workers(progressed)
                    time.sleep(POLL_S)
            next(steps, None)
        except RedisError as error:
            raise QueueError(f"the queue cannot be reached: {error}") from error
        finally:
            self._drop(given)

    def _enqueue(self, request: ProbeRequest) -> str:
        job = self._queue.enqueue_call(
            run_probe,
            args=(
                request.module,
                list(request.before),
                request.repeat,
                self._fingerprint,
                self._timeout,
            ),
            timeout=int(self._timeout) + _SLACK_S,
            result_ttl=_KEPT_S,
            failure_ttl=_KEPT_S,
        )
        return str(job.id)

    def _ended(self, given: dict[str, _Given]) -> Iterator[tuple[ProbeRequest, Answer]]:
        """Answers that have come; jobs that were lost are given again."""
        jobs = Job.fetch_many(list(given), self._connection, serializer=JSONSerializer)
        for job_id, job in zip(list(given), jobs, strict=True):
            status = job.get_status() if job is not None else None
            if job is not None and status is JobStatus.FINISHED:
                yield given.pop(job_id).request, job.return_value() or {"error": "no answer"}
            elif job is None or status is JobStatus.FAILED or _is_silent(job, status):
                failure = _failure(job)
                one = given.pop(job_id)
                if one.attempts == ATTEMPTS:
                    yield one.request, {"error": f"its worker failed {ATTEMPTS} times: {failure}"}
                else:
                    given[self._enqueue(one.request)] = _Given(one.request, one.attempts + 1)

    def _require_workers(self, progressed: float) -> None:
        idle = time.monotonic() - progressed
        if idle > ALONE_S and not Worker.count(connection=self._connection):
            raise QueueError("nobody takes jobs; start `readie-pipeline worker --queue …`")

    def _drop(self, given: dict[str, _Given]) -> None:
        """The run has ended early: nobody waits for these."""
        try:
            for job in Job.fetch_many(list(given), self._connection, serializer=JSONSerializer):
                if job is not None:
                    job.delete()
        except RedisError:
            return  # they expire by themselves


def _is_silent(job: Job, status: JobStatus | None) -> bool:
    if status is not JobStatus.STARTED or job.last_heartbeat is None:
        return False
    return (datetime.now(UTC) - job.last_heartbeat).total_seconds() > SILENT_S


def _failure(job: Job | None) -> str:
    """The last line of what went wrong. Raises `QueueError` when trying again cannot help."""
    if job is None:
        return "the job vanished"
    result = job.latest_result()
    lines = (result.exc_string or "").strip().splitlines() if result is not None else []
    last = lines[-1] if lines else "no word from it"
    if QueueError.__name__ in last:
        raise QueueError(last.partition(": ")[2])
    return last
