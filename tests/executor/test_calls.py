"""Calls of every kind: pickled functions, source text, functions by name; values and refusals."""

import sys
from typing import Any

import pytest

from support.executor_driver import ExecutorDriver

ROUNDING_MS = 0.01  # times in a header have three digits


async def test_an_async_function_runs_to_its_end(executor: ExecutorDriver) -> None:
    async def later(x: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        return x + 1

    assert (await executor.call(later, 1)).value == 2


async def test_an_async_function_of_source_text_runs_to_its_end(executor: ExecutorDriver) -> None:
    source = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x"
    reply = await executor.run_json("source", {"source": source, "entrypoint": "f", "args": [5]})
    assert reply.value == 5


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    yield 1",
        "async def f():\n    yield 1",
        "import functools\ndef g():\n    yield 1\nf = functools.partial(g)",
    ],
)
async def test_a_generator_function_is_refused_in_words(
    executor: ExecutorDriver, source: str
) -> None:
    reply = await executor.run_json("source", {"source": source, "entrypoint": "f"})
    assert reply.error.kind == "invalid_request"
    assert "return a list" in reply.error.message


async def test_source_without_an_entry_point_is_a_script_whose_value_is_result(
    executor: ExecutorDriver,
) -> None:
    source = "if __name__ == '__main__':\n    result = {'a': [1, 2]}"
    assert (await executor.run_json("source", {"source": source})).value == {"a": [1, 2]}


async def test_a_script_without_a_result_gives_null(executor: ExecutorDriver) -> None:
    assert (await executor.run_json("source", {"source": "x = 1"})).value is None


async def test_a_function_by_name_gets_its_arguments(executor: ExecutorDriver) -> None:
    request = {"function": "textwrap:shorten", "args": ["a b c d"], "kwargs": {"width": 5}}
    assert (await executor.run_json("function", request)).value == "[...]"


@pytest.mark.parametrize(
    ("kind", "request_", "field", "words"),
    [
        ("function", {"function": "no_such_module:f"}, "function", "no_such_module"),
        ("function", {"function": "textwrap:no_such"}, "function", "no_such"),
        ("function", {"function": "textwrap"}, "function", "package.module:name"),
        ("source", {"source": "x = 1", "entrypoint": "f"}, "entrypoint", "'f'"),
        ("source", {"source": "f = 1", "entrypoint": "f"}, "entrypoint", "'f'"),
        ("source", {"source": "", "args": {}, "kwargs": [1]}, "kwargs", "dict"),
    ],
)
async def test_a_request_that_names_nothing_to_call_is_refused_by_field(
    executor: ExecutorDriver, kind: str, request_: dict[str, Any], field: str, words: str
) -> None:
    error = (await executor.run_json(kind, request_)).error
    assert error.kind == "invalid_request"
    assert error.details["field"] == field
    assert words in error.message


async def test_a_pickle_of_a_module_that_is_missing_names_it(executor: ExecutorDriver) -> None:
    reply = await executor.run(b"cno_such_module\nf\n.")
    assert reply.error.kind == "serialization"
    assert reply.error.details["module"] == "no_such_module"
    assert "no_such_module" in reply.error.message


async def test_environment_and_secrets_of_the_call_are_there_and_nothing_of_the_tests_is(
    executor: ExecutorDriver,
) -> None:
    request = {"source": "import os\nresult = dict(os.environ)"}
    reply = await executor.run_json(
        "source", request, environment={"MODE": "fast"}, secrets={"TOKEN": "s3cret"}
    )
    seen = reply.value
    assert seen["MODE"] == "fast"
    assert seen["TOKEN"] == "s3cret"
    assert seen["READIE_IN_SANDBOX"] == "1"
    assert seen["READIE_CALL_ID"] == "call-test"
    own = {"PATH", "USER", "LOGNAME", "LANG", "HOME", "TMPDIR", "MPLBACKEND", "MPLCONFIGDIR"}
    assert set(seen) - own == {"MODE", "TOKEN", "READIE_IN_SANDBOX", "READIE_CALL_ID"}


async def test_home_temporary_and_working_folders_are_private_and_writable(
    executor: ExecutorDriver,
) -> None:
    source = """
import os, pathlib, tempfile
for folder in (pathlib.Path.home(), pathlib.Path(tempfile.gettempdir()), pathlib.Path.cwd()):
    (folder / "file").write_text("x")
    assert folder.stat().st_mode & 0o077 == 0, folder
result = [str(pathlib.Path.home()), tempfile.gettempdir(), os.getcwd()]
"""
    home, temporary, work = (await executor.run_json("source", {"source": source})).value
    assert len({home, temporary, work}) == 3


async def test_a_module_that_the_function_writes_can_be_imported(executor: ExecutorDriver) -> None:
    source = "open('mine.py', 'w').write('x = 4')\nimport mine\nresult = mine.x"
    assert (await executor.run_json("source", {"source": source})).value == 4


async def test_worker_processes_of_the_function_work(executor: ExecutorDriver) -> None:
    def parallel() -> list[int]:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(2) as pool:
            return list(pool.map(abs, [-1, 2]))

    assert (await executor.call(parallel)).value == [1, 2]


async def test_spawned_worker_processes_work_too(executor: ExecutorDriver) -> None:
    def parallel() -> list[int]:
        import multiprocessing

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.map(abs, [-3])

    assert (await executor.call(parallel)).value == [3]


async def test_the_function_runs_in_the_main_thread_with_plain_arguments(
    executor: ExecutorDriver,
) -> None:
    source = """
import signal, sys, threading
signal.signal(signal.SIGUSR1, lambda *_: None)
result = [threading.current_thread() is threading.main_thread(), threading.active_count(), sys.argv]
"""
    assert (await executor.run_json("source", {"source": source})).value == [True, 1, [""]]


async def test_a_thread_that_never_ends_does_not_hold_the_answer_back(
    executor: ExecutorDriver,
) -> None:
    source = "import threading\nthreading.Thread(target=threading.Event().wait).start()\nresult = 1"
    assert (await executor.run_json("source", {"source": source})).value == 1


async def test_imports_are_timed_and_named_apart_from_the_run(executor: ExecutorDriver) -> None:
    def load() -> tuple[float, float]:
        import time

        begun = time.perf_counter()
        import wave  # noqa: F401

        import numpy as np  # noqa: F401

        imported = time.perf_counter()
        time.sleep(0.05)
        return (imported - begun) * 1000, (time.perf_counter() - imported) * 1000

    reply = await executor.call(load)
    header, (imports, rest) = reply.last.header, reply.value
    assert header["imports_missed"] == ["numpy"]
    assert 0 < header["import_ms"] <= imports + ROUNDING_MS
    assert header["run_ms"] >= rest - ROUNDING_MS
    assert header["import_ms"] + header["run_ms"] >= imports + rest - ROUNDING_MS


async def test_a_failed_import_has_a_clean_traceback_and_time(executor: ExecutorDriver) -> None:
    def load() -> None:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401

    reply = await executor.call(load)
    assert isinstance(reply.exception, ModuleNotFoundError)
    assert reply.error.traceback.count("File ") == 1
    assert reply.last.header["imports_missed"] == []


async def test_a_call_for_this_interpreter_is_what_was_pickled(executor: ExecutorDriver) -> None:
    def version() -> tuple[int, ...]:
        import sys

        return tuple(sys.version_info[:3])

    assert (await executor.call(version)).value == sys.version_info[:3]
