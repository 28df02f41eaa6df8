"""``POST /v1/explain``: price a call without running it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.bodies import extraction_of_source, parse_json, read_json_bytes
from readie_gateway.explaining import explain
from readie_gateway.options import invalid_field, parse_options
from readie_gateway.responses.single import json_response
from readie_gateway.schemas import ExplainBody
from readie_gateway.services import Services
from readie_wire.envelope import MAX_IMPORTS, CallHeader, CallKind
from readie_wire.extracting import Extraction
from readie_wire.http import API_PREFIX


def routes(services: Services) -> list[Route]:
    return [Route(f"{API_PREFIX}/explain", Explain(services).explain, methods=["POST"])]


@dataclass(frozen=True, slots=True)
class Explain:
    services: Services

    async def explain(self, request: Request) -> Response:
        try:
            body = ExplainBody.model_validate(parse_json(await read_json_bytes(request)))
        except ValidationError as error:
            raise invalid_field(error, ExplainBody) from error
        found = extraction_of_source(body.source or "")
        named = tuple(dict.fromkeys((*body.imports, *found.needs)))
        imports = named[:MAX_IMPORTS]
        header = CallHeader(
            kind=CallKind.SOURCE, function="<explain>", imports=imports, modules=tuple(body.modules)
        )
        options = parse_options(body.options)
        explanation = await asyncio.to_thread(
            explain,
            *(header, options, self.services.fleet.now, self.services.catalogues.loaded),
            found.seen,
        )
        return json_response(explanation | {"notes": list(_notes(found, len(named)))})


def _notes(found: Extraction, named: int) -> Iterator[str]:
    """What a list of imports does not tell; ``named`` is how many there are without a limit."""
    if found.problem:
        yield f"the source was not read whole, its imports may be missing: {found.problem}"
    if found.dynamic:
        yield f"imports of computed names are not priced: {found.dynamic} in the source"
    if named > MAX_IMPORTS:
        yield f"of {named} imports the first {MAX_IMPORTS} are priced"
