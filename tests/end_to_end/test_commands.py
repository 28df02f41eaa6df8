"""``readie run``, ``explain`` and ``doctor``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.scripts import Script, run_module, write_script
from support.stack import Stack

SOURCE = """
    import sys
    import neighbour
    from readie import remote

    @remote(timeout=60)
    def add(x, y=1):
        print("adding")
        return {"sum": x + y, "from": neighbour.NAME}

    def plain(text): return text.upper()

    class Kit:
        plain = staticmethod(plain)

    def fail(): return 1 / 0

    if __name__ == "__main__":
        sys.exit("the main part was run")
"""

Readie = Callable[..., Script]


@pytest.fixture
def run(stack: Stack, tmp_path: Path) -> Readie:
    write_script(SOURCE, tmp_path)
    write_script("NAME = 'next door'", tmp_path, "neighbour.py")

    def command(*words: str) -> Script:
        return run_module(
            "readie", *words, folder=tmp_path.parent, environment=stack.client_environment
        )

    return command


def test_run_prints_the_result_on_stdout_and_the_rest_on_stderr(
    run: Readie, tmp_path: Path
) -> None:
    done = run("run", f"{tmp_path}/script.py::add", "--arg", "x=2", "--arg", "y=3")
    assert done.status == 0, done.err
    assert json.loads(done.out) == {"sum": 5, "from": "next door"}
    assert "adding\n" in done.err
    assert "call-" in done.err


def test_run_takes_plain_functions_text_arguments_and_options(run: Readie, tmp_path: Path) -> None:
    target = f"{tmp_path}/script.py::plain"
    done = run("run", target, "--arg", "text=loud", "--option", "timeout=30")
    assert (done.status, done.out) == (0, "LOUD\n"), done.err
    done = run("run", f"{tmp_path}/script.py::Kit.plain", "--arg", "text=nested")
    assert (done.status, done.out) == (0, "NESTED\n"), done.err


def test_run_shows_what_the_function_raised(run: Readie, tmp_path: Path) -> None:
    done = run("run", f"{tmp_path}/script.py::fail")
    assert done.status == 1
    assert done.out == ""
    assert "ZeroDivisionError" in done.err
    assert "in fail" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "script.py"], "script.py::function"),
        (["run", "nowhere.py::f"], "no file"),
        (["run", "{}/script.py::missing"], "has no 'missing'"),
        (["run", "{}/script.py::add", "--arg", "x"], "name=value"),
        (["run", "{}/script.py::add", "--option", "memroy=1"], "did you mean 'memory'"),
        (["run", "{}/script.py::add", "--option", "memory=lots"], "memory"),
        (["run", "{}/script.py::add.missing"], "has no 'add.missing'"),
        (["up", "--runtime", "magic"], "magic"),
        (["up", "--host", "192.0.2.1"], "--host"),  # of no machine: kept for documentation
    ],
)
def test_a_wrong_command_line_is_told_without_a_traceback(
    run: Readie, tmp_path: Path, words: list[str], message: str
) -> None:
    done = run(*(word.format(tmp_path) for word in words))
    assert done.status != 0
    assert message in done.err
    assert "Traceback" not in done.err


def test_explain_prices_a_call_without_running_it(run: Readie, tmp_path: Path) -> None:
    done = run("explain", f"{tmp_path}/script.py::add", "--arg", "x=2")
    assert done.status == 0, done.err
    assert "choice" in done.out
    assert "adding" not in done.out + done.err


def test_doctor_tells_what_is_here_and_what_is_missing(run: Readie) -> None:
    done = run("doctor")
    assert done.status == 0, done.out + done.err
    for part in ("Python", "queue", "fork runtime", "gvisor runtime", "cgroups", "disk", "service"):
        assert part in done.out
    assert "1 workers (fork)" in done.out


def test_version_and_help_are_there(run: Readie) -> None:
    assert "version" in run("--version").out
    assert all(name in run("--help").out for name in ("up", "run", "explain", "doctor"))
