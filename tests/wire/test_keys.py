import inspect
import time
from types import SimpleNamespace

import pytest

from readie_wire import keys as keys_module
from readie_wire.keys import InvalidIdError, Keys, check_id, new_call_id


@pytest.mark.parametrize("value", ["call-0190", "a", "A.b_c-9", "x" * 128])
def test_safe_ids_pass_unchanged(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "..",
        "a/../b",
        "/abs",
        "a\\b",
        "a\x00b",
        "-a",
        ".a",
        "a b",
        "a:b",
        "x" * 129,
        "a..b",
        "é",
    ],
)
def test_ids_that_could_climb_out_of_a_key_or_a_path_are_refused(value: str) -> None:
    with pytest.raises(InvalidIdError, match="session id"):
        check_id(value, "session id")


def test_call_ids_are_version_7_uuids_of_their_time() -> None:
    before, made, after = time.time(), new_call_id(), time.time()
    digits = made.removeprefix("call-")
    assert len(digits) == 32
    assert digits[12] == "7"
    assert digits[16] in "89ab"
    assert int(before * 1000) <= int(digits[:12], 16) <= after * 1000


def test_call_ids_sort_by_creation_also_within_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter(range(1_800_000_000_000_000_000, 1_800_000_000_002_000_000, 1_000))  # ns
    monkeypatch.setattr(keys_module, "time", SimpleNamespace(time_ns=lambda: next(moments)))
    made = [new_call_id() for _ in range(2_000)]
    assert made == sorted(made)


def test_every_key_carries_the_prefix_and_stands_in_the_table() -> None:
    keys = Keys("test:")
    for name, member in inspect.getmembers(Keys):
        if name.startswith("_") or name == "prefix":
            continue
        if isinstance(member, property):
            key = getattr(keys, name)
        else:
            count = len(inspect.signature(member).parameters) - 1
            key = member(keys, *["x"] * count)
        assert key.startswith("test:")
        kind = key.removeprefix("test:").split(":")[0]
        assert f"``{kind}" in (keys_module.__doc__ or ""), kind
