"""An environment with small made-up packages, to measure and to capture from; processes of the pipeline."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from readie_pipeline.measure.interpreter import Interpreter
from support.made_up_packages import Environment
from support.processes import tied


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment.create(tmp_path / "environment")


@pytest.fixture
def interpreter(environment: Environment, tmp_path: Path) -> Callable[[], Interpreter]:
    home = tmp_path / "home"
    home.mkdir()
    return lambda: Interpreter(home, environment.python)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `readie-pipeline` processes; those that still run are ended with the test."""
    with ExitStack() as stack:

        def start_one(
            *arguments: object, python: str | Path = sys.executable, **variables: str
        ) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                tied(python, "-m", "readie_pipeline", *map(str, arguments)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, **variables},
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start_one
