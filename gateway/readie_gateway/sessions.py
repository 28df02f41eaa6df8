"""What a call of a session takes over from it: the options of the sandbox that they share."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from readie_gateway.errors import InvalidRequestError
from readie_gateway.options import CallOptions, parse_options
from readie_infra.errors import SessionUnknownError
from readie_infra.store import CallStore
from readie_wire.keys import InvalidIdError, check_id
from readie_wire.records import SessionRecord

# Options of a sandbox and not of a call: given when the session is opened, the same for all its calls.
SANDBOX_OPTIONS = (
    *("memory", "max_memory", "gpu", "gpu_memory", "max_gpu_memory", "cpu", "network", "flavor"),
    *("checkpoint_id", "disable_optimized_execution"),
)
REMEMBERED = 10_000  # as many as there may be at a time


class SessionBook:
    """Options of sessions by id. They never change, so each gateway asks for them once."""

    def __init__(self, store: CallStore) -> None:
        self._store = store
        self._known: OrderedDict[str, SessionRecord] = OrderedDict()

    async def options_in_session(self, given: Mapping[str, Any], token: str) -> CallOptions:
        """The options of a call that may be one of a session, which then completes them.

        Raises `InvalidRequestError` for an option that is the session's to say, `SessionError` for a
        session that cannot take calls, and `StoreUnavailableError`. Whether it still can is for the
        enqueue to find out.
        """
        session_id = given.get("session")
        if not isinstance(session_id, str):
            return parse_options(given)
        try:
            check_id(session_id, "the session")
        except InvalidIdError as error:
            raise InvalidRequestError(
                f"options.session: {error}", field="options.session"
            ) from error
        record = self._known.get(session_id) or await self._read(session_id)
        if record.token != token:
            raise SessionUnknownError(session_id)
        own = dict(record.options)
        parsed = parse_options({**given, **own, "flavor": record.flavor})
        alone = parse_options({name: given[name] for name in SANDBOX_OPTIONS if name in given})
        for name in SANDBOX_OPTIONS:
            if name in given and getattr(alone, name) != getattr(parsed, name):
                raise InvalidRequestError(
                    f"options.{name} is the session's to say, which has {getattr(parsed, name)!r}; "
                    "leave it out, or give it when the session is opened",
                    field=f"options.{name}",
                )
        return parsed

    async def _read(self, session_id: str) -> SessionRecord:
        record = await self._store.read_session(session_id)
        if record is None:
            raise SessionUnknownError(session_id)
        if record.ended:
            return record  # the enqueue refuses, or knows the call by its key from before that end
        self._known[session_id] = record
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return record


def sandbox_options(given: Mapping[str, Any]) -> tuple[CallOptions, dict[str, Any]]:
    """Validated options of a session to be, and those of them that were given.

    Raises `InvalidRequestError`.
    """
    for name in given:
        if name not in SANDBOX_OPTIONS:
            parse_options({name: given[name]})  # a misspelled or wrong one is told as such
            raise InvalidRequestError(
                f"options.{name} is an option of calls; a session has {', '.join(SANDBOX_OPTIONS)}",
                field=f"options.{name}",
                limit=SANDBOX_OPTIONS,
            )
    options = parse_options(given)
    return options, {name: getattr(options, name) for name in given}
