"""The hooks around a checkpoint: their order, and that the first error stops them."""

import pytest

from readie_wire import hooks


@pytest.fixture(autouse=True)
def _no_hooks_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_before_checkpoint", [])
    monkeypatch.setattr(hooks, "_after_restore", [])


def test_the_last_registered_closes_first_and_the_first_opens_first() -> None:
    said: list[str] = []

    @hooks.before_checkpoint
    @hooks.after_restore
    def first() -> None:
        said.append("first")

    @hooks.before_checkpoint
    @hooks.after_restore
    def second() -> None:
        said.append("second")

    hooks.run_before_checkpoint()
    hooks.run_after_restore()
    assert said == ["second", "first", "first", "second"]
    first()  # a decorated function is still the function
    assert said[-1] == "first"


def test_the_first_error_stops_and_is_raised() -> None:
    said: list[str] = []
    hooks.after_restore(lambda: said.append("ran"))

    @hooks.after_restore
    def fail() -> None:
        raise LookupError

    hooks.after_restore(lambda: said.append("never"))
    with pytest.raises(LookupError):
        hooks.run_after_restore()
    assert said == ["ran"]
