"""What Prometheus is told about one gateway. Each has a registry of its own, never a global one."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

# Seconds: from a warm call's milliseconds to the wait window.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counters and histograms of requests and calls."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "readie_gateway_requests",
            "Requests answered, by route and status.",
            ["route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "readie_gateway_request_seconds",
            "From the request's head to the last byte of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.calls = Counter(
            "readie_gateway_calls",
            "Calls accepted, by flavor and by the start that pricing chose.",
            ["flavor", "choice"],
            registry=self._registry,
        )

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is looked up when it is asked for."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def collect(self, collector: Collector) -> None:
        """Families that are put together when they are asked for."""
        self._registry.register(collector)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
