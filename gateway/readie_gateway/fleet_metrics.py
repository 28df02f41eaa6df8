"""What Prometheus is told about workers, their generations and the bucket, put together when asked.

Workers open no port for it: what they count travels in their record. So each gateway tells the same,
and a series ends with its worker.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from readie_gateway.bucket_view import BucketView
from readie_gateway.fleet import FleetWatch
from readie_wire.records import WorkerRecord


class FleetCollector(Collector):
    """The families of one fleet, as a gateway last saw it."""

    def __init__(self, fleet: FleetWatch, bucket: BucketView | None) -> None:
        self._fleet = fleet
        self._bucket = bucket

    def describe(self) -> Iterator[Metric]:
        """Nothing is looked at when this is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        workers = self._fleet.now.workers
        yield from _syncs(workers)
        yield from _holdings(workers)
        swaps = CounterMetricFamily(
            "readie_gateway_swaps",
            "How often calls began to be priced for another generation.",
            labels=["flavor"],
        )
        for flavor, count in self._fleet.swaps.items():
            swaps.add_metric([flavor], count)
        yield swaps
        if self._bucket is not None:
            yield from _published(self._bucket)


def _syncs(workers: Sequence[WorkerRecord]) -> Iterator[Metric]:
    """Of the workers that follow a bucket; those that share a disk with one that fetches tell zeros."""
    fetched = CounterMetricFamily(
        "readie_sync_bytes", "Bytes of files that came from the bucket.", labels=["worker"]
    )
    seconds = SummaryMetricFamily(
        "readie_sync_seconds", "Time that syncs took which brought something.", labels=["worker"]
    )
    failures = CounterMetricFamily(
        "readie_sync_failures", "Looks at the bucket, and syncs, that failed.", labels=["worker"]
    )
    remaining = GaugeMetricFamily(
        "readie_sync_remaining_bytes",
        "What is still to come of the generation under way.",
        labels=["worker"],
    )
    for worker in workers:
        sync = worker.holding.sync
        if sync is not None:
            fetched.add_metric([worker.boot], sync.fetched_bytes)
            seconds.add_metric([worker.boot], sync.syncs, sync.seconds)
            failures.add_metric([worker.boot], sync.failures)
            remaining.add_metric([worker.boot], max(0, sync.arriving_bytes - sync.arrived_bytes))
    yield from (fetched, seconds, failures, remaining)


def _holdings(workers: Sequence[WorkerRecord]) -> Iterator[Metric]:
    swaps = CounterMetricFamily(
        "readie_swaps", "How often a worker began to serve another generation.", labels=["worker"]
    )
    info = GaugeMetricFamily(
        "readie_generation_info",
        "1 for each generation on a worker.",
        labels=["worker", "flavor", "generation", "state"],
    )
    tiers = GaugeMetricFamily(
        "readie_checkpoints",
        "Checkpoints of a generation on a worker, by the fastest tier they are in.",
        labels=["worker", "generation", "tier"],
    )
    sizes = GaugeMetricFamily(
        "readie_checkpoint_bytes",
        "Bytes of their files, by the same tiers.",
        labels=["worker", "generation", "tier"],
    )
    refused = GaugeMetricFamily(
        "readie_checkpoints_refused",
        "Checkpoints that a worker does not restore, by kind of reason.",
        labels=["worker", "generation", "reason"],
    )
    for worker in workers:
        swaps.add_metric([worker.boot], worker.holding.swaps)
        for held in worker.holding.generations:
            place = [worker.boot, held.generation]
            info.add_metric([worker.boot, worker.flavor, held.generation, str(held.state)], 1)
            count: Counter[str] = Counter()
            size: Counter[str] = Counter()
            reasons: Counter[str] = Counter()
            for checkpoint in held.checkpoints.values():
                count[checkpoint.tier] += 1
                size[checkpoint.tier] += checkpoint.size
                if checkpoint.refusal is not None:
                    reasons[checkpoint.refusal.kind] += 1
            for tier, number in count.items():
                tiers.add_metric([*place, str(tier)], number)
                sizes.add_metric([*place, str(tier)], size[tier])
            for reason, number in reasons.items():
                refused.add_metric([*place, str(reason)], number)
    yield from (swaps, info, tiers, sizes, refused)


def _published(bucket: BucketView) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "readie_bucket_up",
        "Whether the bucket could be read when this gateway looked last.",
        value=0 if bucket.error else 1,
    )
    info = GaugeMetricFamily(
        "readie_published_info",
        "1 for each generation that a pointer names.",
        labels=["flavor", "rootfs", "generation", "role"],
    )
    for pointer in bucket.pointers:
        for role, target in (("current", pointer.target), ("previous", pointer.previous)):
            if target is not None:
                info.add_metric([pointer.flavor, pointer.rootfs, target.generation, role], 1)
    yield info
