"""``/v1/workers``, ``/v1/catalogues``: what is there to run calls on."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.errors import NotFoundError
from readie_gateway.loading import LoadedCatalogue
from readie_gateway.responses.single import json_response
from readie_gateway.services import Services
from readie_wire.catalogue import FLAVORS
from readie_wire.http import API_PREFIX


def routes(services: Services) -> list[Route]:
    views = FleetViews(services)
    return [
        Route(f"{API_PREFIX}/workers", views.workers, methods=["GET"]),
        Route(f"{API_PREFIX}/catalogues", views.catalogues, methods=["GET"]),
        Route(f"{API_PREFIX}/catalogues/{{flavor}}", views.catalogue, methods=["GET"]),
    ]


@dataclass(frozen=True, slots=True)
class FleetViews:
    services: Services

    async def workers(self, request: Request) -> Response:
        """Asked of the store, not of what this gateway remembers."""
        await self.services.fleet.refresh()
        workers = self.services.fleet.now.workers
        return json_response({"workers": [worker.to_json() for worker in workers]})

    async def catalogues(self, request: Request) -> Response:
        """Those loaded, and the files that were skipped with the reason."""
        catalogues = self.services.catalogues
        return json_response(
            {
                "catalogues": [self._summary(one) for one in catalogues.loaded],
                "skipped": [
                    {"path": str(path), "reason": reason}
                    for path, reason in catalogues.skipped.items()
                ],
            }
        )

    async def catalogue(self, request: Request) -> Response:
        """The one that prices calls of a flavor, else the first loaded, with its checkpoints."""
        flavor = request.path_params["flavor"]
        priced = self.services.fleet.now.priced(flavor)
        loaded = [one for one in self.services.catalogues.loaded if one.flavor == flavor]
        if flavor not in FLAVORS or not (priced or loaded):
            raise NotFoundError(f"there is no catalogue of the flavor {flavor[:32]!r}")
        return json_response(self._whole(priced[0].catalogue if priced else loaded[0]))

    def _summary(self, loaded: LoadedCatalogue) -> dict[str, Any]:
        catalogue = loaded.priced.catalogue
        holders = [
            one.generation
            for one in self.services.fleet.now.priced(loaded.flavor)
            if one.catalogue is loaded
        ]
        return {
            "flavor": loaded.flavor,
            "path": str(loaded.path),
            "sha256": loaded.sha256,
            "alpha": catalogue.alpha,
            "items": len(catalogue.items),
            "checkpoints": len(catalogue.checkpoints),
            "generation": holders[0] if holders else loaded.generation or None,
            "live": bool(holders),
        }

    def _whole(self, loaded: LoadedCatalogue) -> dict[str, Any]:
        catalogue = loaded.priced.catalogue
        return {
            **self._summary(loaded),
            "distributions": catalogue.distributions,
            "checkpoints": [
                {
                    "id": one.id,
                    "canonical": one.canonical,
                    "items": len(one.items),
                    "size_mb": one.size_mb,
                }
                for one in catalogue.checkpoints
            ],
        }
