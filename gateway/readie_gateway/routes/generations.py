"""``/v1/generations``: what is published, which worker has what of it, and a nudge to look."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.bucket_view import PublishedGeneration
from readie_gateway.errors import NotFoundError
from readie_gateway.generation_documents import (
    checkpoint_documents,
    facts_of,
    known_generations,
    pointer_documents,
    serving,
    summary,
    worker_documents,
)
from readie_gateway.loading import LoadedCatalogue
from readie_gateway.responses.single import json_response
from readie_gateway.services import Services
from readie_infra.bucket import BucketError
from readie_infra.objects import ObjectError
from readie_wire.http import API_PREFIX
from readie_wire.keys import InvalidIdError, check_id


def routes(services: Services) -> list[Route]:
    views = GenerationViews(services)
    path = f"{API_PREFIX}/generations"
    return [
        Route(path, views.list, methods=["GET"]),
        Route(f"{path}/refresh", views.refresh, methods=["POST"]),
        Route(f"{path}/{{generation}}", views.one, methods=["GET"]),
    ]


@dataclass(frozen=True, slots=True)
class GenerationViews:
    services: Services

    async def list(self, request: Request) -> Response:
        """What live workers serve and what pointers name, as this gateway last saw it."""
        view = self.services.bucket
        return json_response(
            {
                "bucket": {"url": view.url, "error": view.error} if view else None,
                "published": pointer_documents(view) if view else [],
                "generations": known_generations(self.services.fleet.now, view),
            }
        )

    async def one(self, request: Request) -> Response:
        """Of any that is in the bucket or that a live worker serves."""
        generation = request.path_params["generation"]
        published, error = await self._published(generation)
        fleet, view = self.services.fleet.now, self.services.bucket
        held = next(serving(generation, fleet), None)
        if held is not None:
            flavor, facts = held[0].flavor, held[1]
        elif published is not None:
            flavor, facts = published.listed.flavor, facts_of(published)
        else:
            raise NotFoundError(_not_found(generation, view.url if view else "", error))
        loaded = self._loaded(facts.catalogue_sha256)
        distributions, why_not = await self._distributions(published, loaded)
        return json_response(
            {
                **summary(facts, flavor, fleet, view),
                "checkpoints": checkpoint_documents(published, loaded, facts.checkpoints),
                "holding": worker_documents(generation, fleet),
                "distributions": distributions,
                "files": [asdict(file) for file in published.listed.files] if published else None,
                "error": error or why_not,
            }
        )

    async def refresh(self, request: Request) -> Response:
        """202: everybody who follows the bucket was told to look at it now."""
        await self.services.store.announce()
        workers = self.services.fleet.now.workers
        following = sum(worker.holding.sync is not None for worker in workers)
        return json_response({"announced": True, "workers": following}, 202)

    async def _published(self, generation: str) -> tuple[PublishedGeneration | None, str]:
        """And why the bucket could not be asked."""
        if self.services.bucket is None:
            return None, ""
        try:
            check_id(generation, "generation")
            return await self.services.bucket.generation(generation), ""
        except (InvalidIdError, BucketError, ObjectError) as error:
            return None, str(error)

    async def _distributions(
        self, published: PublishedGeneration | None, loaded: LoadedCatalogue | None
    ) -> tuple[Mapping[str, str] | None, str]:
        if loaded is not None:
            return loaded.priced.catalogue.distributions, ""
        if published is None or self.services.bucket is None:
            return None, ""
        try:
            return await self.services.bucket.distributions(published), ""
        except (BucketError, ObjectError) as error:
            return None, str(error)

    def _loaded(self, sha256: str) -> LoadedCatalogue | None:
        loaded = self.services.catalogues.loaded
        return next((one for one in loaded if one.sha256 == sha256), None)


def _not_found(generation: str, bucket: str, error: str) -> str:
    where = f"in {bucket}" if bucket else "in a bucket, for this gateway has none"
    because = f" ({error})" if error else ""
    return f"generation {generation[:80]!r} is served by no live worker and not {where}{because}"
