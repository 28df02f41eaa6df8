"""Gateway and worker as processes of their own, over a real Valkey, spoken to as anybody would."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.generations import write_generation
from support.redis_servers import RedisServer
from support.stack import Stack, running_stack


@pytest.fixture
def stack(valkey: RedisServer, short_path: Path) -> Iterator[Stack]:
    generation = short_path / "generation"
    write_generation(generation, {"checkpoint_0": [], "checkpoint_1": ["click"]})
    with running_stack(valkey.url, short_path, generations=generation) as running:
        yield running


def test_a_call_runs_behind_its_import_and_its_receipt_says_so(stack: Stack) -> None:
    source = "import click\ndef double(x):\n    print('doubling')\n    return x * 2"
    answer = stack.invoke(source=source, entrypoint="double", args=[21])
    assert answer["ok"], answer
    assert answer["value"] == 42
    assert [line["text"] for line in answer["logs"]] == ["doubling\n"]
    assert answer["receipt"]["start_kind"] == "forked"
    assert answer["receipt"]["checkpoint"] == "checkpoint_1"
    assert answer["receipt"]["runtime"] == "fork"


def test_the_same_call_starts_cold_where_checkpoints_are_switched_off(stack: Stack) -> None:
    answer = stack.invoke(
        source="import decimal\nresult = str(decimal.Decimal('1.5'))",
        options={"disable_optimized_execution": True},
    )
    assert answer["value"] == "1.5"
    assert answer["receipt"]["start_kind"] == "cold"


def test_a_worker_that_was_killed_is_replaced_by_another_without_a_word_to_the_gateway(
    stack: Stack,
) -> None:
    worker = stack.workers.pop()
    worker.kill()
    worker.wait()
    stack.start_worker()
    assert stack.invoke(source="result = 1 + 1")["value"] == 2


def test_a_gateway_that_was_killed_comes_back_to_the_calls_it_had_accepted(stack: Stack) -> None:
    answer = stack.invoke(source="result = 'kept'")
    assert stack.gateway is not None
    stack.gateway.kill()
    stack.gateway.wait()
    stack.start_gateway()
    again = stack.get(f"/v1/calls/{answer['call_id']}/result")
    assert again["value"] == "kept"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_processes_end_well_when_told_to(stack: Stack, number: signal.Signals) -> None:
    assert stack.gateway is not None
    for process in (*stack.workers, stack.gateway):
        process.send_signal(number)
        assert process.wait(timeout=45) == 0, stack.logs()
    assert "Traceback" not in stack.logs()
