"""Values on their way back: what cannot be carried is refused with its path, type and size."""

import math

import pytest

from readie_executor import results
from readie_wire.outcome import Encoding
from support.executor_driver import ExecutorDriver

LIMIT = 1 << 20


def refusal(value: object, encoding: Encoding = Encoding.PICKLE) -> results.ResultRefusedError:
    with pytest.raises(results.ResultRefusedError) as caught:
        results.encode(value, encoding, LIMIT)
    return caught.value


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("return open('/etc/hostname')", "_io.TextIOWrapper"),
        ("return open('/etc/hostname', 'rb')", "_io.BufferedReader"),
        ("return (i for i in 'ab')", "generator"),
        ("import threading; return threading.Lock()", "_thread.lock"),
        ("import socket; return socket.socket()", "socket.socket"),
    ],
)
async def test_a_value_that_cannot_be_pickled_ends_the_call_at_once_and_names_the_type(
    executor: ExecutorDriver, source: str, found: str
) -> None:
    scope: dict[str, object] = {}
    exec(f"def f():\n    print('kept')\n    {source}", scope)
    reply = await executor.call(scope["f"])  # type: ignore[arg-type]
    assert reply.error.kind == "result_not_serializable"
    assert reply.error.details == {"path": "result", "type": found}
    assert reply.stdout == "kept\n"


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held


def test_the_path_leads_to_the_part_that_cannot_be_carried() -> None:
    value = {"a": [1, (2, Holder(i for i in "ab"))]}
    info = refusal(value).info
    assert info.details["path"] == "result['a'][1][1].held"
    assert info.details["type"] == "generator"
    assert "result['a'][1][1].held" in info.message


def test_the_search_for_the_culprit_ends_in_a_large_value() -> None:
    value: list[object] = [object() for _ in range(10_000)]
    value.append(i for i in "ab")
    assert refusal(value).info.details["path"] == "result"


def test_a_value_of_the_exact_limit_goes_and_one_byte_more_does_not() -> None:
    size = len(results.encode(b"x" * 1000, Encoding.PICKLE, LIMIT))
    assert results.encode(b"x" * 1000, Encoding.PICKLE, size)
    with pytest.raises(results.ResultRefusedError) as caught:
        results.encode(b"x" * 1000, Encoding.PICKLE, size - 1)
    assert caught.value.info.kind == "result_too_large"
    assert caught.value.info.details == {"size": size, "limit": size - 1}


async def test_a_result_over_the_calls_limit_is_told_with_its_size(
    executor: ExecutorDriver,
) -> None:
    reply = await executor.run_json("source", {"source": "result = 'x' * 5000"}, result_limit=1000)
    assert reply.error.details == {"size": 5002, "limit": 1000}


def test_values_of_numpy_are_plain_json() -> None:
    np = pytest.importorskip("numpy")
    value = {"mean": np.float64(1.5), "rows": np.arange(3), "n": np.int64(2)}
    assert results.encode(value, Encoding.JSON, LIMIT) == (
        b'{"mean": 1.5, "rows": [0, 1, 2], "n": 2}'
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, object(), b"bytes"])
def test_a_value_that_is_no_json_is_refused(value: object) -> None:
    info = refusal({"x": value}, Encoding.JSON).info
    assert info.kind == "result_not_serializable"
    assert info.details["path"] == "result['x']"


def test_lone_surrogates_are_spelled_out_in_json() -> None:
    assert results.encode("é\udc80", Encoding.JSON, LIMIT) == '"é\\\\udc80"'.encode()


def test_an_endless_value_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert refusal(endless, Encoding.JSON).info.kind == "result_not_serializable"
