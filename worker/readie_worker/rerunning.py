"""Which ends of a run are worth another one, where the caller allows it. Pure.

A run is repeated when its sandbox or its worker was lost under it, never for what the function did
by itself: an exception, an exit, a timeout.
"""

import json

from readie_infra.store import Event
from readie_wire.outcome import ErrorKind, Outcome
from readie_wire.records import CallRecord, reruns_allowed

_LOST = frozenset({ErrorKind.SANDBOX_DIED, ErrorKind.WORKER_LOST, ErrorKind.OUT_OF_MEMORY})


def may_run_again(record: CallRecord, outcome: Outcome) -> bool:
    """Whether the call has a rerun left for such an end.

    Out of memory is repeated once: the second run meets the same limit, unless the worker had no
    memory to add the first time.
    """
    if record.reruns < 1 or outcome.error is None:
        return False
    if outcome.error.kind is ErrorKind.OUT_OF_MEMORY:
        return record.reruns == reruns_allowed(record.options)
    return outcome.error.kind in _LOST


def is_poison(record: CallRecord, outcome: Outcome) -> bool:
    """Whether this was the last of several runs that all came to nothing."""
    has_run_again = record.reruns < reruns_allowed(record.options) and not record.session
    return has_run_again and outcome.error is not None and outcome.error.kind in _LOST


def notice(record: CallRecord, outcome: Outcome) -> Event:
    """A line for the caller among the call's own output, where its two runs meet."""
    assert outcome.error is not None  # noqa: S101 - see `may_run_again`
    what = outcome.error.message.partition("\n")[0]
    runs = 1 + reruns_allowed(record.options)
    text = f"readie: {what}; the call runs again (run {runs - record.reruns + 1} of {runs})\n"
    return Event("log", json.dumps({"stream": "stderr", "text": text}).encode("ascii"))
