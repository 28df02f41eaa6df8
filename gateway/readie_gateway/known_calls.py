"""Finding the call that a path names: it, or whether it is unknown or expired."""

import re
import time

from starlette.requests import Request

from readie_gateway.errors import NotFoundError, ResultExpiredError
from readie_gateway.services import Services
from readie_infra.store import Snapshot
from readie_wire.keys import check_id

# After every event that a call can have: reads the record alone.
NO_EVENTS = 1 << 40

_CALL_ID = re.compile(r"call-([0-9a-f]{12})7[0-9a-f]{3}[89ab][0-9a-f]{15}")
# Ids younger than the shortest time a result is kept cannot have expired: they are made up.
_YOUNGEST_EXPIRED_MS = 1_000
_OLDEST_MS = 1_600_000_000_000  # before the first release: no call has such an id


async def read_call(services: Services, request: Request, *, after: int = NO_EVENTS) -> Snapshot:
    """The call of ``{call_id}`` with its events after ``after``.

    Another token's call is as unknown as one that never was. Raises `NotFoundError`,
    `ResultExpiredError` and `StoreUnavailableError`.
    """
    call_id = check_id(request.path_params["call_id"], "the call id")
    snapshot = await services.store.read(call_id, after)
    if snapshot is None:
        if _may_have_expired(call_id):
            raise ResultExpiredError(
                f"{call_id} is no longer known: results are kept for the call's result_ttl"
            )
        raise NotFoundError(f"there is no call {call_id}")
    if snapshot.record.token != request.scope["token"]:
        raise NotFoundError(f"there is no call {call_id}")
    return snapshot


def _may_have_expired(call_id: str) -> bool:
    match = _CALL_ID.fullmatch(call_id)
    if match is None:
        return False
    return _OLDEST_MS <= int(match[1], 16) <= time.time() * 1000 - _YOUNGEST_EXPIRED_MS
