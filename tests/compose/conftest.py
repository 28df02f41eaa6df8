"""The compose stack on a real engine: images are built once a module, tests bring up their own stack."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compose_stack import ComposeStack, prepare
from support.docker_engine import DockerEngine, left_behind, require_engine, running_engine
from support.image_parts import import_base


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    require_engine()
    with (
        tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True) as folder,
        running_engine(Path(folder)) as engine,
    ):
        import_base(engine)
        yield engine


@pytest.fixture(scope="module")
def built(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> ComposeStack:
    """The stack with its images, of which nothing runs."""
    return prepare(engine, tmp_path_factory.mktemp("compose"))


@pytest.fixture
def up(built: ComposeStack) -> Iterator[ComposeStack]:
    """The stack, healthy. Afterwards it is taken down, and nothing of it may be left."""
    engine = built.engine
    containers, networks = [], []
    try:
        built.compose("up", "--detach", "--wait", "--no-build")
        containers = engine.lines("ps", "--all", "--quiet", "--no-trunc")
        networks = engine.lines("network", "ls", "--quiet", "--no-trunc", "--filter", "type=custom")
        yield built
    finally:
        print(built.compose("logs", "--no-color", check=False))
        built.compose("--profile", "*", "down", "--volumes", "--timeout", "20")
    assert containers
    assert networks
    assert left_behind(engine, containers, networks) == []
