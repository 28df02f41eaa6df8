"""The executor's side of the protocol: HELLO, then one call and its answer, or a session's calls."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from readie_executor import output
from readie_executor.calling import Call, load_unpickler
from readie_executor.channel import Channel
from readie_executor.environment import Surroundings
from readie_executor.rehearsing import rehearse
from readie_executor.running import Answer, answer
from readie_executor.sharing import SharedGlobals
from readie_wire.framing import FrameType
from readie_wire.outcome import ErrorInfo, ErrorKind
from readie_wire.versions import PROTOCOL_VERSION

# A clone without a call for so long was made ahead of one, so it has time to rehearse.
SPARE_AFTER_S = 0.02


@dataclass(frozen=True, slots=True)
class Greeting:
    """What HELLO says about this process. ``checkpoint`` is the key it was started from."""

    mode: str
    checkpoint: str | None = None
    report: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL_VERSION,
            "python": "{}.{}.{}".format(*sys.version_info),
            "pid": os.getpid(),
            "checkpoint": self.checkpoint,
            "mode": self.mode,
            "report": dict(self.report),
        }


def serve(channel: Channel, surroundings: Surroundings, greeting: Greeting) -> None:
    """Serve one call; of a session, all until the worker ends it. Then the connection is closed.

    Nothing of the caller's is touched before STARTED is on its way: as long as the worker has not
    seen that, it may run the call elsewhere. Raises `ConnectionEndedError` before the call, and
    `OSError` when the worker is gone.
    """
    channel.send(FrameType.HELLO, greeting.to_json())
    if greeting.checkpoint is not None and channel.quiet_for(SPARE_AFTER_S):
        rehearse(surroundings)
    shared = SharedGlobals()
    in_session = _serve_call(channel, surroundings, shared, first=True)
    while in_session:
        _serve_call(channel, surroundings, shared, first=False)
    channel.close()


def _serve_call(
    channel: Channel, surroundings: Surroundings, shared: SharedGlobals, *, first: bool
) -> bool:
    """Serve the next call; whether it is one of a session."""
    message = channel.expect(FrameType.CALL)
    in_session = bool(message.header.get("session"))
    # Where GO came with CALL, one packet says both, and wakes the worker once.
    unsaid = [FrameType.READY, FrameType.STARTED]
    if channel.next_type is not FrameType.GO:
        channel.announce(unsaid.pop(0))
    load_unpickler(message)  # while GO is on its way, and not on the function's account
    channel.expect(FrameType.GO)
    channel.announce(*unsaid)
    try:
        call = Call.from_message(message, shared if in_session else None)
        if first:
            surroundings.enter_call(call.call_id, call.environment, call.secrets, call.workdir)
        else:
            surroundings.go_on(call.call_id, call.environment, call.secrets)
    except (ValueError, TypeError, OSError) as error:
        given = _refusal(error)
    else:
        del message  # its body lives in the call alone from here on
        if first:
            give_own_main_module()
        given = answer(call)
    output.flush()
    if in_session:  # else it is done behind the answer
        output.flush_c_library()
    channel.send(given.type, given.header, given.body)
    return in_session


def give_own_main_module() -> None:
    """An empty ``__main__``: the function's, so that no child process of it runs the executor."""
    sys.modules["__main__"] = ModuleType("__main__")
    sys.argv[:] = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules the function writes to its working directory import


def _refusal(error: Exception) -> Answer:
    info = ErrorInfo(
        kind=ErrorKind.INVALID_REQUEST,
        type=type(error).__name__,
        message=f"the call cannot be set up in the sandbox: {error}",
    )
    return Answer(FrameType.ERROR, {"error": info.to_json(), "encoding": "none", "size": 0})
