"""``/healthz``, ``/readyz``, ``/metrics``, ``/openapi.json``: for what watches the gateway."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.metrics import CONTENT_TYPE
from readie_gateway.openapi import openapi_document
from readie_gateway.responses.single import json_response
from readie_gateway.services import Services
from readie_infra.errors import StoreUnavailableError


def routes(services: Services) -> list[Route]:
    health = Health(services)
    return [
        Route("/healthz", health.alive, methods=["GET"]),
        Route("/readyz", health.ready, methods=["GET"]),
        Route("/metrics", health.metrics, methods=["GET"]),
        Route("/openapi.json", health.openapi, methods=["GET"]),
    ]


@dataclass(frozen=True, slots=True)
class Health:
    services: Services

    async def alive(self, request: Request) -> Response:
        """This process answers; nothing else is looked at."""
        return json_response({"status": "ok", "version": version("readie")})

    async def ready(self, request: Request) -> Response:
        """503 names each dependency that is down; one that merely worries is a warning."""
        checks: dict[str, dict[str, Any]] = {}
        warnings: list[str] = []
        try:
            health = await self.services.store.health()
        except StoreUnavailableError as error:
            checks["store"] = {"ok": False, "detail": str(error)}
        else:
            checks["store"] = {"ok": True, "detail": health.server}
            warnings += health.warnings
        if self.services.board.closing:
            checks["gateway"] = {"ok": False, "detail": "it is being stopped"}
        warnings += [
            f"catalogue {path} is skipped: {reason}"
            for path, reason in self.services.catalogues.skipped.items()
        ]
        if not self.services.fleet.now.workers:
            warnings.append("no worker is alive: calls wait for one up to their queue_timeout")
        down = sorted(name for name, check in checks.items() if not check["ok"])
        body = {"ready": not down, "down": down, "checks": checks, "warnings": warnings}
        return json_response(body, 503 if down else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self.services.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        return json_response(openapi_document())
