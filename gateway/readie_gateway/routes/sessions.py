"""``/v1/sessions``: open a session, look at those of the token, end one."""

from dataclasses import dataclass

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.bodies import parse_json, read_json_bytes
from readie_gateway.documents import session_document, session_location
from readie_gateway.errors import NotFoundError, TooManySessionsError
from readie_gateway.options import invalid_field
from readie_gateway.placement import place_session
from readie_gateway.responses.single import json_response
from readie_gateway.schemas import SessionBody
from readie_gateway.services import Services
from readie_gateway.sessions import sandbox_options
from readie_wire.http import API_PREFIX
from readie_wire.keys import check_id, new_session_id
from readie_wire.records import SessionRecord

SESSIONS_RETRY_AFTER_S = 10  # of thousands of open sessions some end within that, one by one


def routes(services: Services) -> list[Route]:
    sessions = SessionRoutes(services)
    path = f"{API_PREFIX}/sessions"
    return [
        Route(path, sessions.open, methods=["POST"]),
        Route(path, sessions.list, methods=["GET"]),
        Route(f"{path}/{{session_id}}", sessions.one, methods=["GET"]),
        Route(f"{path}/{{session_id}}", sessions.end, methods=["DELETE"]),
    ]


@dataclass(frozen=True, slots=True)
class SessionRoutes:
    services: Services

    async def open(self, request: Request) -> Response:
        """201. The sandbox is made by the first call, from what that imports."""
        try:
            body = SessionBody.model_validate(parse_json(await read_json_bytes(request) or b"{}"))
        except ValidationError as error:
            raise invalid_field(error, SessionBody) from error
        options, given = sandbox_options(body.options)
        flavor = place_session(options, self.services.fleet.now)
        record = SessionRecord(new_session_id(), request.scope["token"], flavor, given)
        idle_s = self.services.limits.session_idle_s
        if not await self.services.store.open_session(record, idle_s):
            raise TooManySessionsError(
                "there are as many open sessions as there may be; end some",
                headers={"Retry-After": str(SESSIONS_RETRY_AFTER_S)},
            )
        headers = {"Location": session_location(record.session_id)}
        return json_response(session_document(record), 201, headers)

    async def list(self, request: Request) -> Response:
        """The open ones of this token."""
        records = await self.services.store.sessions(request.scope["token"])
        return json_response({"sessions": [session_document(record) for record in records]})

    async def one(self, request: Request) -> Response:
        """Also one that has ended, with the reason, for a day."""
        return json_response(session_document(await self._read(request)))

    async def end(self, request: Request) -> Response:
        """A call that runs is cancelled, those that wait fail. Once more changes nothing."""
        record = await self._read(request)
        await self.services.store.end_session(record.session_id, "it was ended by its caller")
        return json_response(session_document(await self._read(request)))

    async def _read(self, request: Request) -> SessionRecord:
        session_id = check_id(request.path_params["session_id"], "the session id")
        record = await self.services.store.read_session(session_id)
        if record is None or record.token != request.scope["token"]:
            raise NotFoundError(f"there is no session {session_id}")
        return record
