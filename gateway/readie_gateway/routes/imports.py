"""``GET /v1/imports``: what the calls of the last days imported, for the pipeline to plan from."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from readie_gateway.errors import InvalidRequestError, NotFoundError
from readie_gateway.services import Services
from readie_wire.http import API_PREFIX, MEDIA_NDJSON


def routes(services: Services) -> list[Route]:
    return [Route(f"{API_PREFIX}/imports", Imports(services).recorded, methods=["GET"])]


@dataclass(frozen=True, slots=True)
class Imports:
    services: Services

    async def recorded(self, request: Request) -> Response:
        ledger = self.services.imports
        if ledger is None:
            raise NotFoundError(
                "this service keeps no import sets: READIE_RECORD_IMPORTS_DAYS is 0"
            )
        days = _days(request.query_params.get("days", str(ledger.days)), ledger.days)
        await ledger.write()  # what this gateway has noted is part of the answer
        return StreamingResponse(ledger.lines(days), media_type=MEDIA_NDJSON)


def _days(given: str, kept: int) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= kept:
        raise InvalidRequestError(
            f"days: {given[:32]!r} is not a number from 1 to {kept}, the days that are kept",
            field="days",
            limit=kept,
        )
    return int(given)
