"""The stack that docker-compose.yml describes, on a real engine, with gVisor inside its worker."""

from pathlib import Path

import pytest

from support.compose_stack import ComposeStack

# Building the images is part of the first test, on a machine that may be busy.
pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ARTIFACTS = "infra/images/artifacts.yml"
ASK = """
import socket
try:
    socket.create_connection(({address!r}, 6379), timeout=5)
    result = "open"
except OSError:
    result = "closed"
"""


def test_a_call_restores_a_checkpoint_that_the_stack_captured_and_published(
    up: ComposeStack,
) -> None:
    printed = up.compose("run", "--rm", "-T", "pipeline", "--planner", "fixed", "--imports", "six")
    assert "12 runs and restores" in printed
    up.readie.until("the published generation is held", lambda: restorable(up) == ["checkpoint_1"])

    answer = up.readie.invoke(source="import six\nresult = six.__name__")

    assert answer["value"] == "six", answer
    receipt = answer["receipt"]
    assert receipt["runtime"] == "gvisor"
    assert receipt["checkpoint"] == "checkpoint_1"
    assert receipt["start_kind"] in ("restored", "pool")
    assert_that_sandboxes_are_limited(up)


def assert_that_sandboxes_are_limited(stack: ComposeStack) -> None:
    """By their network, in which the stack's own services are not, and by a cgroup of their own."""
    question = ASK.format(address=stack.address("valkey"))
    assert stack.readie.invoke(source=question)["value"] == "closed"
    greedy = stack.readie.invoke(
        source="result = len(b'x' * 800_000_000)",
        options={"memory": "256Mi", "max_memory": "256Mi"},
    )
    assert greedy["error"]["type"] == "readie.OutOfMemoryError", greedy


def test_a_folder_of_artifacts_that_is_not_there_is_refused_by_name(
    built: ComposeStack, tmp_path: Path
) -> None:
    missing = tmp_path / "generations"
    try:
        printed = built.compose(
            *("up", "--detach", "--no-build", "--no-deps", "worker"),
            also=ARTIFACTS,
            check=False,
            environment={"ARTIFACTS_DIR": str(missing)},
        )
    finally:
        built.compose("down", "--volumes")

    assert f"bind source path does not exist: {missing}" in printed
    assert not missing.exists()


def test_no_image_holds_a_secret(built: ComposeStack) -> None:
    for image in ("readie-gateway", "readie-worker"):
        told = [
            *built.engine.lines("history", "--no-trunc", image),
            *built.engine.lines("inspect", image),
        ]
        assert not [line for line in told for secret in built.secrets if secret in line]


def restorable(stack: ComposeStack) -> list[str]:
    """Ids of the checkpoints that a worker holds and the gateway prices."""
    held = stack.readie.get("/v1/generations") or {"generations": []}
    return [name for one in held["generations"] if one["priced"] for name in one["checkpoints"]]
