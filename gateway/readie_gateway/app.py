"""The ASGI application, composed from its parts in one place."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.middleware import Middleware

from readie_gateway.auth import BearerAuth, Tokens
from readie_gateway.cleaning import clean_blobs
from readie_gateway.fleet_metrics import FleetCollector
from readie_gateway.observing import Observing
from readie_gateway.problems import EXCEPTION_HANDLERS
from readie_gateway.routes import (
    calls,
    dead,
    explain,
    fleet,
    generations,
    health,
    imports,
    invoke,
    sessions,
)
from readie_gateway.services import Services
from readie_gateway.tending import SideTasks
from readie_infra.errors import StoreUnavailableError
from readie_infra.nudges import Nudges

CATALOGUES_PATIENCE_S = 5.0  # before the first request; all but very large ones are read by then


def create_app(services: Services, tokens: Tokens) -> Starlette:
    """The gateway of these services.

    Its lifespan owns the side tasks, and closes the store. Requests come in when catalogues and fleet
    have been looked at. A store that is away does not keep it from starting: `/readyz` says so, calls
    get 503; nor does a catalogue that takes long to read: until then calls start cold.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            async with SideTasks(**_side_tasks(services)):
                await services.catalogues.first_look(CATALOGUES_PATIENCE_S)
                with contextlib.suppress(StoreUnavailableError):
                    await services.fleet.refresh()
                yield
        finally:
            if services.imports is not None:
                with contextlib.suppress(StoreUnavailableError):
                    await services.imports.write()
            await services.store.close()

    services.metrics.gauge(
        "readie_gateway_waiting", "Requests that wait for a call.", lambda: len(services.board)
    )
    services.metrics.gauge(
        "readie_gateway_workers", "Live workers.", lambda: len(services.fleet.now.workers)
    )
    services.metrics.collect(FleetCollector(services.fleet, services.bucket))
    return Starlette(
        routes=[
            *invoke.routes(services),
            *calls.routes(services),
            *sessions.routes(services),
            *dead.routes(services),
            *fleet.routes(services),
            *generations.routes(services),
            *explain.routes(services),
            *imports.routes(services),
            *health.routes(services),
        ],
        middleware=[
            Middleware(Observing, metrics=services.metrics),
            Middleware(BearerAuth, tokens=tokens),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )


def _side_tasks(services: Services) -> dict[str, Callable[[], Awaitable[None]]]:
    tasks: dict[str, Callable[[], Awaitable[None]]] = {
        "doorbells": services.board.run_doorbells,
        "sweep": services.board.run_sweep,
        "fleet": services.fleet.run,
        "catalogues": services.catalogues.run,
    }
    if services.bucket is not None:
        tasks["bucket"] = partial(
            services.bucket.run, Nudges(services.store, services.board.boot).pause
        )
    if services.imports is not None:
        tasks["imports"] = services.imports.run
    if services.blobs is not None:
        tasks["blobs"] = partial(clean_blobs, services.store, services.blobs)
    return tasks
