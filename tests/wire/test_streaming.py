"""JSON in chunks gives what JSON in one piece gives, wherever the cuts are."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.streaming import JsonStream

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def read(chunks: Iterable[bytes]) -> dict[str, Any]:
    stream = JsonStream(chunks)
    found = {key: stream.value() for key in stream.members()}
    stream.end()
    return found


@given(st.dictionaries(st.text(), values), st.integers(1, 40), st.sampled_from([None, 2]))
def test_any_object_in_any_chunks(value: dict[str, Any], size: int, indent: int | None) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=False)
    assert read(cut(data.encode("utf-8", "surrogatepass"), size)) == value


def test_objects_are_walked_into_without_decoding_them_whole() -> None:
    stream = JsonStream([b'{"a": {"x": 1, "y', b'": [2]}, "b": {}, "c": 12', b"34}"])
    seen: list[Any] = []
    for key in stream.members():
        seen.append(key)
        if stream.is_object():
            seen.append({name: stream.value() for name in stream.members()})
        else:
            seen.append(stream.value())
    assert seen == ["a", {"x": 1, "y": [2]}, "b", {}, "c", 1234]


def test_lists_are_walked_through_an_element_at_a_time() -> None:
    stream = JsonStream([b"[1, {", b'"a": [2, 3', b"]}, [] , 4]", b" "])
    seen = [
        [stream.value() for _ in stream.elements()] if stream.is_list() else stream.value()
        for _ in stream.elements()
    ]
    stream.end()
    assert seen == [1, {"a": [2, 3]}, [], 4]
    assert not list(JsonStream([b"[]"]).elements())


BROKEN = """
[] | { | {"a" | {"a": | {"a": 1 | {"a": 1,} | {"a" 1} | {1: 2} | {"a": 1} x | {"a": tru} | {"a": 1 "b": 2}
"""


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b'{"a": "\xff"}', *(text.strip().encode() for text in BROKEN.split("|"))]
)
@pytest.mark.parametrize("size", [1, 100])
def test_what_is_not_json_is_refused(data: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(cut(data, size))


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(RecursionError):
        read([b'{"a": ' + b"[" * 100_000])
