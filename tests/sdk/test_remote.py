"""``@remote`` itself, and calls through a client without a service."""

import asyncio
import functools
import inspect
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import readie
import readie.testing
from readie import remote
from readie._loops import refuse_in_coroutine

untyped = cast(Any, remote)  # for uses that a type checker refuses as well


@pytest.fixture(scope="module", autouse=True)
def client() -> Iterator[readie.Client]:
    with readie.testing.local_client(show_logs=False) as local:
        yield local


@remote
def double(x: int, *, times: int = 1) -> int:
    """Twice, ``times`` times."""
    for _ in range(times):
        x *= 2
    return x


@remote
async def slowly(x: int) -> int:
    await asyncio.sleep(0)
    return x


@remote
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


@remote
@functools.lru_cache
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Kind:
    def __init__(self, value: int) -> None:
        self.value = value

    def helper(self) -> int:
        return self.value + 1

    @remote
    def method(self, more: int = 0) -> int:
        return self.helper() + more

    @staticmethod
    @remote
    def static(x: int) -> int:
        return x

    @classmethod
    @remote
    def of_class(cls, x: int) -> str:
        return f"{cls.__name__} {x}"


def test_a_call_looks_like_a_local_one() -> None:
    assert double(21) == 42
    assert double(1, times=3) == 8
    assert double.local(2) == 4


def test_parameters_may_have_any_name() -> None:
    @remote
    def named(**given: int) -> dict[str, int]:
        return given

    assert named(self=1, args=2, client=3) == {"self": 1, "args": 2, "client": 3}
    assert named.local(self=1) == {"self": 1}


def test_name_signature_and_the_plain_function_are_kept() -> None:
    assert double.__name__ == "double"  # type: ignore[attr-defined]
    assert double.__doc__ == "Twice, ``times`` times."
    assert str(inspect.signature(double)) == "(x: int, *, times: int = 1) -> int"
    assert inspect.unwrap(double)(4) == 8
    assert str(inspect.signature(Kind(1).method)) == "(more: int = 0) -> int"
    assert repr(double) == "<readie.RemoteFunction double>"


def test_async_functions_run_from_plain_code_and_from_coroutines() -> None:
    async def both() -> Any:
        return await asyncio.gather(slowly.aio(2), double.aio(2))

    assert slowly(1) == 1
    assert list(asyncio.run(both())) == [2, 4]


def test_a_function_that_calls_itself_does_so_inside_the_sandbox() -> None:
    assert factorial(5) == 120
    assert fibonacci(30) == 832040


def test_methods_lambdas_partials_and_cached_functions_are_callable() -> None:
    assert Kind(1).method() == 2
    assert Kind(1).method(more=5) == 7
    assert asyncio.run(Kind(3).method.aio()) == 4
    assert Kind.static(3) == 3
    assert Kind.of_class(3) == "Kind 3"
    assert remote(lambda x: x)(1) == 1
    assert remote(functools.partial(pow, 2))(3) == 8


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: untyped(Kind), "class"),
        (lambda: untyped(double), "remote already"),
        (lambda: untyped(classmethod(lambda cls: 1)), "under @classmethod"),
        (lambda: untyped(7), "needs a function"),
        (lambda: untyped(_generator), "generator functions are not supported yet"),
        (lambda: untyped(_async_generator), "generator functions are not supported yet"),
        (lambda: untyped(memroy="1G"), "unknown option 'memroy'; did you mean 'memory'"),
        (lambda: cast(Any, double).bind(zzz=1), "there are memory, max_memory"),
        (lambda: untyped(timeout="soon"), "timeout must be a number of seconds"),
    ],
)
def test_what_cannot_be_remote_is_refused_when_it_is_decorated(wrong: Any, words: str) -> None:
    with pytest.raises(readie.ConfigurationError, match=words):
        wrong()


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> Any:
    yield 1


def test_options_can_be_bound_and_bound_again() -> None:
    @remote(env={"COLOUR": "red"})
    def colour() -> str | None:
        import os

        return os.environ.get("COLOUR")

    assert colour() == "red"
    assert colour.bind(env={"COLOUR": "blue"})() == "blue"
    assert colour() == "red"


def test_a_spawned_call_has_an_id_a_result_logs_and_a_receipt() -> None:
    @remote
    def talk() -> int:
        print("one\ntwo")
        return 3

    call = talk.spawn()
    assert call.id.startswith("call-")
    assert not call.receipt
    assert call.get(60) == 3
    assert call.get() == 3
    assert "".join(line.text for line in call.logs) == "one\ntwo\n"
    receipt = call.receipt
    assert receipt is not None
    assert receipt.call_id == call.id


def test_waiting_may_end_before_the_call_and_go_on_later(tmp_path: Path) -> None:
    @remote
    def slow(gate: Path) -> int:
        import time

        while not gate.exists():
            time.sleep(0.01)
        return 1

    call = slow.spawn(tmp_path / "gate")
    with pytest.raises(readie.StillRunningError, match=call.id):
        call.get(timeout=0.05)
    (tmp_path / "gate").touch()
    assert call.get() == 1


def test_a_cancelled_call_ends() -> None:
    @remote
    def endless() -> None:
        import time

        while True:
            time.sleep(1)

    call = endless.spawn()
    call.cancel()
    with pytest.raises(readie.ExecutionCancelledError):
        call.get(60)


def test_a_plain_call_leaves_its_receipt() -> None:
    double(1)
    receipt = readie.last_receipt()
    assert receipt is not None
    assert receipt.run_ms >= 0


def test_a_blocking_call_in_a_coroutine_is_refused_and_names_the_way_out() -> None:
    async def wrong() -> None:
        double(1)

    async def wrong_further_down() -> None:
        [double(x) for x in range(2)]

    for coroutine in (wrong, wrong_further_down):
        with pytest.raises(readie.BlockingCallInEventLoopError, match=r"await double\.aio\(\)"):
            asyncio.run(coroutine())


def test_a_blocking_call_works_while_another_thread_imports_asyncio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as while_importing:
        while_importing.setitem(sys.modules, "asyncio", types.ModuleType("asyncio"))
        refuse_in_coroutine("f()", "await f.aio()")


def test_a_blocking_call_in_a_notebook_cell_works() -> None:
    """As ipykernel has it: its loop is running, and its own coroutine executes the cell."""
    kernel: dict[str, Any] = {"__name__": "ipykernel.kernelbase"}
    exec("async def execute(cell, scope): exec(cell, scope)", kernel)
    scope = {"double": double, "__name__": "__main__"}
    asyncio.run(kernel["execute"]("value = double(4)", scope))
    assert scope["value"] == 8
    in_a_coroutine = "import asyncio\nasync def f(): double(4)\nfailure = f()"
    asyncio.run(kernel["execute"](in_a_coroutine, scope))
    with pytest.raises(readie.BlockingCallInEventLoopError):
        asyncio.run(scope["failure"])  # type: ignore[arg-type]


def test_calls_from_many_threads_do_not_mix() -> None:
    results: dict[int, int] = {}

    def one(number: int) -> None:
        results[number] = double(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 0, 1: 2, 2: 4, 3: 6}


def test_a_closed_client_says_so() -> None:
    with readie.testing.local_client() as other:
        bound = double.bind(client=other)
    with pytest.raises(readie.ClientClosedError):
        bound(1)


def test_inside_a_sandbox_a_decorated_function_is_the_plain_function() -> None:
    code = "import readie\ndef f(): pass\nassert readie.remote(f) is f\nassert readie.remote(memory='1G')(f) is f"
    subprocess.run(
        [sys.executable, "-c", code], env={"READIE_IN_SANDBOX": "1"}, check=True, timeout=60
    )


def test_importing_the_sdk_is_quick_and_loads_no_network_code() -> None:
    code = (
        "import sys, time; began = time.perf_counter(); import readie\n"
        "print(time.perf_counter() - began)\n"
        "print({'asyncio', 'h11', 'ssl', 'cloudpickle', 'rich', 'click'} & set(sys.modules))"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - began < 60
    assert done.stdout.splitlines()[1] == "set()"
