import pytest

from readie_wire.lifecycle import (
    HELD,
    TERMINAL,
    TRANSITIONS,
    IllegalTransitionError,
    State,
    Transition,
    next_state,
)


def test_nothing_follows_a_terminal_state() -> None:
    assert not [start for start, _ in TRANSITIONS if start in TERMINAL]


def test_every_state_can_be_reached_from_a_new_call() -> None:
    reached: set[State | None] = {None}
    while True:
        more = {end for (start, _), end in TRANSITIONS.items() if start in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == {None, *State}


def test_every_state_that_is_not_terminal_leads_to_an_end() -> None:
    for state in set(State) - TERMINAL:
        ends = {end for (start, _), end in TRANSITIONS.items() if start is state}
        assert ends & TERMINAL, state


def test_only_a_started_call_can_succeed() -> None:
    assert [start for (start, _), end in TRANSITIONS.items() if end is State.SUCCEEDED] == [
        State.RUNNING
    ]


def test_a_held_call_can_be_lost_and_a_queued_one_cannot() -> None:
    losing = {start for start, transition in TRANSITIONS if transition is Transition.LOSE}
    assert losing == HELD


def test_an_illegal_step_names_the_state_and_the_step() -> None:
    with pytest.raises(IllegalTransitionError, match="a succeeded call cannot start"):
        next_state(State.SUCCEEDED, Transition.START)
    with pytest.raises(IllegalTransitionError, match="a new call cannot take"):
        next_state(None, Transition.TAKE)
