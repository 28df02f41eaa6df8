"""Runs a call that does nothing before a clone takes a real one.

A forked process shares its zygote's memory until it writes to it, and every page it then touches for
the first time costs a copy. The rehearsal touches those that any call needs while nobody waits.
"""

import pickle

from readie_executor.calling import Call
from readie_executor.environment import Surroundings
from readie_executor.running import answer
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.framing import Decoder, FrameType, encode_message


def rehearse(surroundings: Surroundings) -> None:
    """Decode, run and answer ``abs(0)``, and leave no trace of it."""
    header = CallHeader(CallKind.PICKLE, "abs").to_json()
    body = pickle.dumps({"func": abs, "args": (0,), "kwargs": {}})
    [message] = Decoder().feed(b"".join(encode_message(FrameType.CALL, header, body)))
    call = Call.from_message(message)
    surroundings.enter_call(call.call_id, call.environment, call.secrets, call.workdir)
    given = answer(call)
    b"".join(encode_message(given.type, given.header, given.body))
    surroundings.enter()
