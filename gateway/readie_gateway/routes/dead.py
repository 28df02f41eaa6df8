"""``/v1/dead``: calls that came to nothing as often as they may; look at them, queue or drop them."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readie_gateway.documents import call_document, call_location
from readie_gateway.errors import InvalidRequestError, NotFoundError
from readie_gateway.responses.single import json_response
from readie_gateway.services import Services
from readie_infra.blobs import payload_key
from readie_infra.store import DeadLetter
from readie_wire.catalogue import FLAVORS
from readie_wire.http import API_PREFIX
from readie_wire.keys import check_id, new_call_id
from readie_wire.records import CallRecord


def routes(services: Services) -> list[Route]:
    dead = DeadLetters(services)
    path = f"{API_PREFIX}/dead"
    return [
        Route(path, dead.list, methods=["GET"]),
        Route(f"{path}/{{call_id}}", dead.one, methods=["GET"]),
        Route(f"{path}/{{call_id}}", dead.drop, methods=["DELETE"]),
        Route(f"{path}/{{call_id}}/requeue", dead.requeue, methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    services: Services

    async def list(self, request: Request) -> Response:
        """Those of this token, the oldest first."""
        return json_response({"dead": [asdict(letter) for letter in await self._letters(request)]})

    async def one(self, request: Request) -> Response:
        """The letter, and the call where its record can be read."""
        letter = await self._letter(request)
        try:
            call = call_document(await self.services.store.dead_record(letter.call_id))
        except (ValueError, KeyError, TypeError):
            call = None
        return json_response({**asdict(letter), "call": call})

    async def drop(self, request: Request) -> Response:
        """Its record and payload end with the usual time of results."""
        letter = await self._letter(request)
        await self.services.store.drop_dead(letter.call_id)
        return json_response({"call_id": letter.call_id, "dropped": True})

    async def requeue(self, request: Request) -> Response:
        """202: the same call once more, under a new id; the parked one is dropped.

        Asked for again, as after a lost answer, it gives the call that it gave before.
        """
        call_id = _asked_for(request)
        key = hashlib.sha256(f"requeue {call_id}".encode()).hexdigest()
        again = await self.services.store.call_of_key(request.scope["token"], key)
        again = again or await self._requeued(await self._letter(request), key)
        await self.services.store.drop_dead(call_id)
        body = {"call_id": again, "requeued": call_id}
        return json_response(body, 202, {"Location": call_location(again)})

    async def _requeued(self, letter: DeadLetter, key: str) -> str:
        try:
            parked = await self.services.store.dead_record(letter.call_id)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(
                f"the record of {letter.call_id} cannot be read, so it cannot run: {error}; drop it",
                field="call_id",
            ) from error
        again = await self._copy(parked)
        enqueued = await self.services.store.enqueue(
            again,
            idempotency=(key, ""),
            queue_timeout=float(again.options["queue_timeout"]),
            gateway=None,
            queue_limit=self.services.limits.queue,
        )
        return enqueued.call_id

    async def _copy(self, parked: CallRecord) -> CallRecord:
        """A call nobody waits for; its payload is its own, so that the parked one's can go."""
        call_id = new_call_id()
        blob = ""
        if parked.payload_blob and self.services.blobs is not None:
            blob = payload_key(call_id)
            await self.services.blobs.put(blob, await self.services.blobs.get(parked.payload_blob))
        return replace(parked, call_id=call_id, payload_blob=blob, waited=False)

    async def _letters(self, request: Request) -> Sequence[DeadLetter]:
        token = request.scope["token"]
        found = [await self.services.store.dead(flavor, token) for flavor in FLAVORS]
        return sorted((letter for part in found for letter in part), key=lambda one: one.parked_ms)

    async def _letter(self, request: Request) -> DeadLetter:
        call_id = _asked_for(request)
        for letter in await self._letters(request):
            if letter.call_id == call_id:
                return letter
        raise NotFoundError(f"{call_id} is not among the dead letters")


def _asked_for(request: Request) -> str:
    return check_id(request.path_params["call_id"], "the call id")
