"""An environment with small made-up packages, to measure and to capture from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from readie_pipeline.measure.interpreter import Interpreter
from support.made_up_packages import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment.create(tmp_path / "environment")


@pytest.fixture
def interpreter(environment: Environment, tmp_path: Path) -> Callable[[], Interpreter]:
    home = tmp_path / "home"
    home.mkdir()
    return lambda: Interpreter(home, environment.python)
