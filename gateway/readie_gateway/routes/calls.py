"""``/v1/calls``: what has become of calls, waiting for them, ending them."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from readie_gateway.documents import call_document
from readie_gateway.errors import InvalidRequestError
from readie_gateway.following import is_over
from readie_gateway.known_calls import read_call
from readie_gateway.preferences import (
    STREAMS,
    WHOLE,
    negotiate,
    read_after,
    read_preference,
    read_wait,
)
from readie_gateway.responses.live import REPRESENTATIONS, send_outcome, stream_call
from readie_gateway.responses.single import (
    answer_in_json,
    json_response,
    pending_response,
    wait_for_end,
)
from readie_gateway.services import Services
from readie_wire.http import API_PREFIX, MEDIA_FRAMES
from readie_wire.lifecycle import TERMINAL

LISTED = 50
MOST_LISTED = 1_000


def routes(services: Services) -> list[Route]:
    calls = Calls(services)
    path = f"{API_PREFIX}/calls"
    return [
        Route(path, calls.list, methods=["GET"]),
        Route(f"{path}/{{call_id}}", calls.one, methods=["GET"]),
        Route(f"{path}/{{call_id}}", calls.cancel, methods=["DELETE"]),
        Route(f"{path}/{{call_id}}/result", CallResult(services), methods=["GET"]),
        Route(f"{path}/{{call_id}}/events", CallEvents(services), methods=["GET"]),
    ]


@dataclass(frozen=True, slots=True)
class Calls:
    services: Services

    async def list(self, request: Request) -> Response:
        given = request.query_params.get("limit", str(LISTED))
        if not given.isdecimal() or not 1 <= int(given) <= MOST_LISTED:
            raise InvalidRequestError(
                f"limit: {given[:32]!r} is not a number from 1 to {MOST_LISTED}",
                field="limit",
                limit=MOST_LISTED,
            )
        records = await self.services.store.recent(request.scope["token"], int(given))
        return json_response({"calls": [call_document(record) for record in records]})

    async def one(self, request: Request) -> Response:
        snapshot = await read_call(self.services, request)
        return json_response(call_document(snapshot.record))

    async def cancel(self, request: Request) -> Response:
        """200: it has ended. 202: its worker was told, and ends it within seconds."""
        snapshot = await read_call(self.services, request)
        call_id = snapshot.record.call_id
        state = await self.services.store.cancel(call_id, "cancelled by the caller")
        if state in TERMINAL:
            return json_response({"call_id": call_id, "state": state})
        return pending_response(call_id, state or snapshot.record.state, "cancelling")


@dataclass(frozen=True, slots=True)
class CallResult:
    """``GET …/result?wait=``: how the call ended, or 202 when it has not by then."""

    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        media = negotiate(request, WHOLE)
        wait = read_wait(request)
        if wait is None:
            wait = read_preference(request).wait or 0.0
        window_s = min(wait, self.services.limits.wait_window_s)
        snapshot = await read_call(self.services, request, after=0)
        record = snapshot.record
        if not is_over(snapshot) and window_s == 0 and not snapshot.more:
            await pending_response(record.call_id, record.state)(scope, receive, send)
            return
        with self.services.board.watch(record.call_id) as watch:
            if record.state not in TERMINAL:
                await self.services.store.subscribe(record.call_id, self.services.board.boot)
                watch.ring()  # it may have ended before the subscription
            with watch.ended_with_client(record.waited):
                last = await wait_for_end(
                    self.services, watch, receive, window_s=window_s, first=snapshot
                )
                if media == MEDIA_FRAMES and is_over(last):
                    await send_outcome(self.services, last, REPRESENTATIONS[media], send)
                    return
                response = await answer_in_json(self.services, watch, last)
                await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class CallEvents:
    """``GET …/events``: everything since an event, then live."""

    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        media = negotiate(request, STREAMS)
        after = read_after(request)
        snapshot = await read_call(self.services, request, after=after)
        record = snapshot.record
        if is_over(snapshot) and not snapshot.events:
            # 204 tells a browser that reconnects after the end not to do so again.
            await Response(status_code=204)(scope, receive, send)
            return
        with self.services.board.watch(record.call_id) as watch:
            if record.state not in TERMINAL:
                await self.services.store.subscribe(record.call_id, self.services.board.boot)
                watch.ring()  # something may have happened before the subscription
            with watch.ended_with_client(record.waited):
                await stream_call(
                    self.services,
                    watch,
                    REPRESENTATIONS[media],
                    receive,
                    send,
                    after=after,
                    window_s=self.services.limits.wait_window_s,
                    first=snapshot,
                )
