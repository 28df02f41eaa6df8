"""The life of a call as one pure table. The Lua scripts are held to it by stateful tests."""

from enum import StrEnum


class State(StrEnum):
    """Where a call is. ``lost``: its worker died. ``dead``: parked after too many attempts."""

    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    LOST = "lost"
    DEAD = "dead"


class Transition(StrEnum):
    """What can happen to a call. Each value is also the name of the script that does it."""

    ENQUEUE = "enqueue"
    TAKE = "take"  # a worker holds the call; nothing of it has run
    START = "start"  # the fence: from here on the function may have run
    RELEASE = "release"  # the worker hands an unstarted call back
    RETRY = "retry"  # a started call may run again (retries left, or idempotent)
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"  # no worker took it in time
    LOSE = "lose"  # its worker is gone, or its time was over and nobody finished it
    PARK = "park"


TERMINAL = frozenset(
    {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED, State.LOST, State.DEAD}
)
HELD = frozenset({State.LEASED, State.RUNNING})  # a worker owns the call

TRANSITIONS: dict[tuple[State | None, Transition], State] = {
    (None, Transition.ENQUEUE): State.QUEUED,
    (State.QUEUED, Transition.TAKE): State.LEASED,
    (State.LEASED, Transition.START): State.RUNNING,
    (State.LEASED, Transition.RELEASE): State.QUEUED,
    (State.RUNNING, Transition.RETRY): State.QUEUED,
    (State.RUNNING, Transition.SUCCEED): State.SUCCEEDED,
    (State.QUEUED, Transition.FAIL): State.FAILED,  # its session ended before its turn came
    (State.LEASED, Transition.FAIL): State.FAILED,
    (State.RUNNING, Transition.FAIL): State.FAILED,
    (State.QUEUED, Transition.CANCEL): State.CANCELLED,
    (State.LEASED, Transition.CANCEL): State.CANCELLED,
    (State.RUNNING, Transition.CANCEL): State.CANCELLED,
    (State.QUEUED, Transition.EXPIRE): State.EXPIRED,
    (State.LEASED, Transition.LOSE): State.LOST,
    (State.RUNNING, Transition.LOSE): State.LOST,
    (State.QUEUED, Transition.PARK): State.DEAD,
    (State.LEASED, Transition.PARK): State.DEAD,
    (State.RUNNING, Transition.PARK): State.DEAD,
}


class IllegalTransitionError(ValueError):
    """The call is not in a state in which this can happen to it."""


def next_state(state: State | None, transition: Transition) -> State:
    """The state after ``transition``; `IllegalTransitionError` where the table has no row."""
    try:
        return TRANSITIONS[state, transition]
    except KeyError:
        where = "a new call" if state is None else f"a {state} call"
        raise IllegalTransitionError(f"{where} cannot {transition}") from None
