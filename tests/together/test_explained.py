"""What is predicted of a call, held against the call: real processes, real packages."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import readie
from readie._cli.explaining import measured
from readie_wire.outcome import Receipt
from support.generations import write_generation
from support.redis_servers import RedisServer
from support.scripts import run_module, run_script, write_script
from support.stack import Stack, running_stack

SOURCE = """
    import numpy as np

    def nothing():
        return 1

    def sums():
        return float(np.arange(3).sum())

    def frames():
        import pandas as pd
        return int(pd.DataFrame({"a": [1, 2]}).a.sum())
"""
# Six is small and imports nothing: what matters is that the checkpoint has it.
CHECKPOINTS = {
    "checkpoint_0": [],
    "checkpoint_1": ["numpy"],
    "checkpoint_2": ["numpy", "pandas"],
    "checkpoint_3": ["six"],
}


@pytest.fixture(scope="module")
def stack(_valkey_of_the_session: RedisServer) -> Iterator[Stack]:
    _valkey_of_the_session.flush()
    with tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True) as name:
        generation = Path(name) / "generation"
        write_generation(generation, CHECKPOINTS, load_times={"numpy": 0.1, "pandas": 0.5})
        with running_stack(
            _valkey_of_the_session.url, Path(name), generations=generation
        ) as running:
            yield running


@pytest.mark.parametrize(
    ("function", "checkpoint", "seen"),
    [
        ("nothing", "checkpoint_0", ()),
        ("sums", "checkpoint_1", ("used in sums, line 8",)),
        ("frames", "checkpoint_2", ("import in frames, line 11",)),
    ],
)
def test_explain_is_held_against_a_run(
    stack: Stack, tmp_path: Path, function: str, checkpoint: str, seen: tuple[str, ...]
) -> None:
    script = write_script(SOURCE, tmp_path)
    words = ("explain", f"{script}::{function}", "--run")
    done = run_module("readie", *words, folder=tmp_path, environment=stack.client_environment)
    assert done.status == 0, done.err
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert f"choice    {checkpoint} of " in lines["choice"]
    assert f"forked from {checkpoint}" in lines["measured"]
    assert lines[">"].split()[1] == checkpoint  # the chosen one of the starts
    assert set(CHECKPOINTS) | {"cold"} <= set(done.out.split())
    assert all(where in done.out for where in seen)


@pytest.mark.parametrize("function", ["nothing", "sums", "frames"])
def test_the_receipt_and_the_call_hold_the_prediction_that_was_explained(
    stack: Stack, function: str
) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("\n".join(line.removeprefix("    ") for line in SOURCE.splitlines()), scope)
    with readie.Client(stack.url, stack.token) as client:
        remote = readie.remote(client=client)(scope[function])
        explained = remote.explain()
        remote()
    receipt = readie.last_receipt()
    assert receipt is not None
    choice = explained["choice"]
    assert (receipt.checkpoint, receipt.generation) == (choice["checkpoint"], choice["generation"])
    assert receipt.predicted_start_ms == pytest.approx(choice["predicted_start_s"] * 1000)
    assert choice["predicted_start_s"] < choice["cold_start_s"]
    assert receipt.measured_start_ms == receipt.start_ms + receipt.import_ms > 0
    cold, *others = explained["quotes"]
    assert (cold["fixed_s"], cold["checkpoint"]) == (0.05, None)
    assert {other["fixed_s"] for other in others} == {0.001}
    assert {other["size_s"] for other in others} == {0.0}  # a fork reads nothing from disk
    for quote in explained["quotes"]:
        assert quote["start_s"] == pytest.approx(quote["fixed_s"] + quote["imports_s"])
        assert quote["total_s"] == pytest.approx(quote["size_cost_s"] + quote["missing_s"])
    call = stack.get(f"/v1/calls/{receipt.call_id}")
    told = Receipt.from_json(call["receipt"])
    assert told.predicted_start_ms == receipt.predicted_start_ms
    assert told.measured_start_ms == receipt.measured_start_ms
    assert call["choice"]["predicted_start_s"] == choice["predicted_start_s"]


def test_a_cold_start_that_was_asked_for_is_predicted_too(stack: Stack) -> None:
    answer = stack.invoke(source="import numpy", options={"disable_optimized_execution": True})
    receipt = Receipt.from_json(answer["receipt"])
    assert receipt.start_kind == "cold"
    assert receipt.predicted_start_ms == pytest.approx((0.05 + 0.1) * 1000)
    assert receipt.measured_start_ms is not None
    assert receipt.measured_start_ms > receipt.import_ms > 0


def test_a_module_of_the_callers_own_keeps_a_checkpoint_that_loaded_its_namesake_away(
    stack: Stack, tmp_path: Path
) -> None:
    write_script("WHOSE = 'mine'", tmp_path, "six.py")
    source = """
        import json
        import readie

        @readie.remote
        def whose():
            import six
            return six.WHOSE

        value = whose()
        quotes = {quote["checkpoint"]: quote["refused"] for quote in whose.explain()["quotes"]}
        print(json.dumps([value, readie.last_receipt().checkpoint, quotes["checkpoint_3"]]))
    """
    environment = stack.client_environment
    done = run_script(source, tmp_path, environment)
    assert done.status == 0, done.err
    value, checkpoint, refused = json.loads(done.out)
    assert (value, checkpoint) == ("mine", "checkpoint_0")
    assert "brings its own six" in refused


@pytest.mark.parametrize(
    ("predicted", "said"), [(400.0, "predicted 0.100 s more"), (250.0, "predicted 0.050 s less")]
)
def test_the_error_of_a_prediction_is_told(predicted: float, said: str) -> None:
    receipt = Receipt(
        "call-1", start_ms=290.0, predicted_start_ms=predicted, measured_start_ms=300.0
    )
    assert measured(receipt).endswith(said)
