"""Every request counted and timed, by route; a line in the log for those that went wrong."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from readie_gateway.metrics import Metrics

log = logging.getLogger(__name__)

_CLIENT_GONE = 499  # the status, by custom, of a request whose client left before the answer
_UNROUTED = "unrouted"  # paths that no route has: as labels they would be without bound


class Observing:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = _CLIENT_GONE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            route = scope.get("route")
            label = getattr(route, "path", _UNROUTED)
            seconds = time.perf_counter() - began
            self._metrics.requests.labels(label, str(status)).inc()
            self._metrics.seconds.labels(label).observe(seconds)
            if status >= 500:
                log.warning(
                    "%s %s: %d after %.3f s (traceparent %s)",
                    *(scope["method"], scope["path"], status, seconds, _traceparent(scope)),
                )


def _traceparent(scope: Scope) -> str:
    found = next((value for name, value in scope["headers"] if name == b"traceparent"), b"-")
    return found.decode("latin-1")[:55]
