"""Probes as jobs of a queue."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from redis import Redis

from readie_pipeline.distributing.jobs import run_probe
from readie_pipeline.distributing.queues import LOST_AFTER_S, PROBES, queue_on
from readie_pipeline.distributing.sharing import POLL_S, Order, SharedRun
from readie_pipeline.measure.probing import Answer, ProbeRequest, Track

_SLACK_S = 60  # on top of the probe's own time-out, which ends it in all but the worst cases


class QueuedProber:
    """See `readie_pipeline.measure.probing.Prober`. ``timeout`` in seconds for one probe.

    ``fingerprint`` names the packages that workers must have. Raises `QueueError`; see `SharedRun`
    for that and for ``lost_after``.
    """

    def __init__(
        self,
        connection: Redis,
        fingerprint: str,
        timeout: float,
        track: Track,
        lost_after: float = LOST_AFTER_S,
    ) -> None:
        self._queue = queue_on(connection, PROBES)
        self._fingerprint = fingerprint
        self._timeout = timeout
        self._track = track
        self._lost_after = lost_after

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        steps = iter(self._track([request.module for request in requests], doing))
        waiting = list(reversed(requests))
        with closing(SharedRun[ProbeRequest](self._queue, self._lost_after)) as run:
            while waiting or run.waits:
                while waiting and run.has_room:
                    request = waiting.pop()
                    run.give(request, self._order(request))
                ended = run.collect()
                for request, answer in ended:
                    next(steps, None)
                    yield request, answer
                if not ended:
                    time.sleep(POLL_S)
        next(steps, None)

    def _order(self, request: ProbeRequest) -> Order:
        arguments = (request.to_json(), self._fingerprint, self._timeout)
        return Order(run_probe, arguments, int(self._timeout) + _SLACK_S)
