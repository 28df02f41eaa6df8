"""``POST /v1/invoke``: run a call, and answer with what becomes of it."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from readie_gateway.json_text import dump
from readie_gateway.known_calls import NO_EVENTS
from readie_gateway.preferences import ANY_KIND, negotiate, read_preference
from readie_gateway.responses.live import REPRESENTATIONS, stream_call
from readie_gateway.responses.single import answer_in_json, pending_response, wait_for_end
from readie_gateway.services import Services
from readie_gateway.submitting import Accepted, submit
from readie_infra.store import StoredEvent
from readie_wire.http import API_PREFIX, MEDIA_JSON
from readie_wire.keys import new_call_id
from readie_wire.lifecycle import State


def routes(services: Services) -> list[Route]:
    return [Route(f"{API_PREFIX}/invoke", Invoke(services), methods=["POST"])]


@dataclass(frozen=True, slots=True)
class Invoke:
    """An ASGI endpoint: the request, the wait and the answer are one coroutine with one owner."""

    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        media = negotiate(request, ANY_KIND)
        preference = read_preference(request)
        window_s = self.services.limits.wait_window_s
        if preference.wait is not None:
            window_s = min(preference.wait, window_s)
        waited = not preference.asynchronous
        with self.services.board.watch(new_call_id()) as watch:
            accepted = await submit(
                self.services,
                request,
                call_id=watch.call_id,
                waited=waited,
                subscribe=window_s > 0,
            )
            if not accepted.created:
                watch.move(accepted.call_id)
                watch.ring()  # it may have ended long ago
            if window_s == 0:
                response = pending_response(accepted.call_id, await self._state(accepted))
                await response(scope, receive, send)
                return
            with watch.ended_with_client(waited):
                opening = _accepted_event(accepted) if accepted.created else None
                after = opening.seq if opening else 0
                if media == MEDIA_JSON:
                    snapshot = await wait_for_end(
                        *(self.services, watch, receive),
                        window_s=window_s,
                        after=after,
                        record=accepted.record,
                    )
                    response = await answer_in_json(self.services, watch, snapshot)
                    await response(scope, receive, send)
                    return
                await stream_call(
                    self.services,
                    watch,
                    REPRESENTATIONS[media],
                    receive,
                    send,
                    after=after,
                    window_s=window_s,
                    opening=opening,
                    record=accepted.record,
                )

    async def _state(self, accepted: Accepted) -> State:
        """Of a call that is not waited for: it was queued just now, or is that of an earlier key."""
        if accepted.created:
            return State.QUEUED
        snapshot = await self.services.store.read(accepted.call_id, NO_EVENTS)
        return snapshot.record.state if snapshot else State.QUEUED


def _accepted_event(accepted: Accepted) -> StoredEvent:
    """The first event of every call, which need not be read back."""
    data = {"call_id": accepted.call_id, "choice": accepted.choice.to_json()}
    return StoredEvent(1, "accepted", dump(data))
