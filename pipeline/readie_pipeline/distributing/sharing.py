"""The work of one run as jobs of a queue: any worker takes them, and a lost one's are given again."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redis.exceptions import RedisError
from rq import Queue, Worker
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from readie_pipeline.distributing.queues import KEPT_S
from readie_pipeline.errors import QueueError

OUTSTANDING = 64  # jobs of a run on the queue at a time
POLL_S = 0.05  # between looks, for callers
ALONE_S = 60.0  # how long nothing may happen while there is no worker
ATTEMPTS = 3
QUEUED_S = 24 * 3_600  # how long a job may wait for a worker; its run has ended long ago then

T = TypeVar("T")

# What the job returned, or ``{"error": reason}``.
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """A function of `readie_pipeline.distributing.jobs`, and how long (seconds) one call may take."""

    function: Callable[..., Answer]
    arguments: Sequence[Any]
    timeout: int


@dataclass(slots=True)
class _Given(Generic[T]):
    """``sign`` is what last changed about the job, and ``since`` when we saw that."""

    item: T
    order: Order
    attempts: int
    since: float
    sign: Hashable = None


class SharedRun(Generic[T]):
    """Jobs of one run, each known to the caller by an item.

    A worker is lost when nothing about its job has changed for ``lost_after`` seconds of our own
    clock: the clocks of other machines do not matter. Every method raises `QueueError`: no queue,
    no worker, or one that must not take part.
    """

    def __init__(self, queue: Queue, lost_after: float) -> None:
        self._queue = queue
        self._lost_after = lost_after
        self._given: dict[str, _Given[T]] = {}
        self._progressed = time.monotonic()

    @property
    def has_room(self) -> bool:
        return len(self._given) < OUTSTANDING

    @property
    def waits(self) -> bool:
        return bool(self._given)

    def give(self, item: T, order: Order, attempts: int = 1) -> None:
        try:
            job = self._queue.enqueue_call(
                order.function,
                args=tuple(order.arguments),
                timeout=order.timeout,
                ttl=QUEUED_S,
                result_ttl=KEPT_S,
                failure_ttl=KEPT_S,
            )
        except RedisError as error:
            raise _unreachable(error) from error
        self._given[str(job.id)] = _Given(item, order, attempts, time.monotonic())

    def collect(self) -> list[tuple[T, Answer]]:
        """Answers that have come since; what was lost is given again. Does not wait."""
        try:
            found = self._collect()
            if not found and time.monotonic() - self._progressed > ALONE_S:
                self._require_workers()
        except RedisError as error:
            raise _unreachable(error) from error
        return found

    def close(self) -> None:
        """Nobody waits for the rest any more."""
        try:
            for job in self._fetch():
                if job is not None:
                    job.delete()
        except RedisError:
            return  # they expire by themselves
        finally:
            self._given.clear()

    def _collect(self) -> list[tuple[T, Answer]]:
        answers: list[tuple[T, Answer]] = []
        jobs = self._fetch()
        queued = set(self._queue.job_ids)
        for job_id, job in zip(list(self._given), jobs, strict=True):
            one = self._given[job_id]
            status = job.get_status(refresh=False) if job is not None else None
            if job is not None and status is JobStatus.FINISHED:
                answer = job.return_value() or {"error": "no answer"}
                if "refused" in answer:
                    raise QueueError(str(answer["refused"]))
            elif job is None or status is JobStatus.FAILED or self._is_lost(one, job, queued):
                failure = _failure(job)
                if one.attempts < ATTEMPTS:
                    self._forget(job_id, job)
                    self.give(one.item, one.order, one.attempts + 1)
                    continue
                answer = {"error": f"its worker failed {ATTEMPTS} times: {failure}"}
            else:
                continue
            self._forget(job_id, job)
            self._progressed = time.monotonic()
            answers.append((one.item, answer))
        return answers

    def _fetch(self) -> list[Job | None]:
        connection = self._queue.connection
        return Job.fetch_many(list(self._given), connection, serializer=JSONSerializer)

    def _is_lost(self, one: _Given[T], job: Job, queued: set[str]) -> bool:
        """Was it taken, and has nobody spoken of it for too long?"""
        if job.id in queued:
            return False
        sign = (job.get_status(refresh=False), job.last_heartbeat)
        now = time.monotonic()
        if sign != one.sign:
            one.sign, one.since = sign, now
        return now - one.since > self._lost_after

    def _forget(self, job_id: str, job: Job | None) -> None:
        del self._given[job_id]
        if job is not None:
            job.delete()

    def _require_workers(self) -> None:
        """Those whose last word is older than their own promise do not count."""
        if not Worker.all(queue=self._queue, serializer=JSONSerializer):
            raise QueueError(
                f"nobody takes jobs of {self._queue.name}; start `readie-pipeline worker --queue …`"
            )


def _failure(job: Job | None) -> str:
    """The last line of what went wrong."""
    if job is None:
        return "the job vanished"
    result = job.latest_result()
    lines = (result.exc_string or "").strip().splitlines() if result is not None else []
    return lines[-1] if lines else "no word from it"


def _unreachable(error: RedisError) -> QueueError:
    return QueueError(f"the queue cannot be reached: {error}")
