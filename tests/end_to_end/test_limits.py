"""What a caller is told of memory and of lost sandboxes, through the SDK and a real gateway."""

import os
from pathlib import Path

import pytest

import readie
from readie import remote

pytestmark = pytest.mark.usefixtures("client")

MIB = 1 << 20


def test_out_of_memory_has_the_limit_that_was_asked_for_and_the_peak() -> None:
    @remote(memory="256Mi")
    def allocate() -> int:
        return len(bytearray(2 << 30))

    with pytest.raises(readie.OutOfMemoryError, match="256 MiB") as raised:
        allocate()
    assert raised.value.limit == 256 * MIB
    assert raised.value.peak is not None
    assert 0 < raised.value.peak < 2 << 30


def test_memory_grows_to_what_was_said() -> None:
    @remote(memory="128Mi", max_memory="1Gi")
    def allocate() -> int:
        return sum(len(block) for block in [bytearray(b"x") * (50 << 20) for _ in range(8)])

    assert allocate() == 400 * MIB


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (2, 3)])
def test_a_sandbox_that_dies_is_told_and_the_call_runs_again_only_when_asked(
    tmp_path: Path, retries: int, runs: int
) -> None:
    tally = tmp_path / "tally"

    @remote(retries=retries)
    def die() -> None:
        with tally.open("a") as file:
            file.write("x")
        os._exit(9)

    with pytest.raises(readie.SandboxDiedError) as raised:
        die()
    assert raised.value.exit_code == 9
    assert raised.value.receipt is not None
    assert raised.value.receipt.attempt == runs
    assert tally.read_text() == "x" * runs


def test_more_retries_than_the_service_allows_are_refused_by_name() -> None:
    with pytest.raises(readie.InvalidRequestError, match="retries"):
        remote(retries=11)(lambda: 1)()
