"""Calls through a real Valkey and real forked processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readie_wire.lifecycle import State
from readie_wire.manifest import Manifest
from readie_wire.outcome import ErrorKind, StartKind
from readie_wire.records import Choice
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.service import Worker
from support.calling import SURELY, Caller, text_of, until
from support.generations import EMPTY, write_generation
from support.processes import tied

DECIMALS = "checkpoint_1"

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
async def runtime(short_path: Path) -> AsyncIterator[ForkRuntime]:
    runtime = ForkRuntime(short_path, environment=os.environ)
    await runtime.open()
    yield runtime
    await runtime.close()


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return write_generation(tmp_path / "generation", {EMPTY: [], DECIMALS: ["decimal", "json"]})


@pytest.fixture
async def worker(
    runtime: ForkRuntime, manifest: Manifest, start_worker: StartWorker, tmp_path: Path
) -> AsyncIterator[Worker]:
    """With a generation, and sandboxes ready ahead for both checkpoints."""
    async with start_worker(runtime, artifacts=tmp_path / "generation") as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        yield worker


@pytest.fixture
async def bare_worker(runtime: ForkRuntime, start_worker: StartWorker) -> AsyncIterator[Worker]:
    """Without a generation: every start is cold."""
    async with start_worker(runtime) as worker:
        yield worker


def chosen(manifest: Manifest, checkpoint: str = EMPTY, **more: Any) -> Choice:
    return Choice(manifest.generation, checkpoint, predicted_s=0.25, **more)


async def test_a_call_starts_in_a_sandbox_that_waited_for_it(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    ended = await caller.call(lambda x: x + 1, 41, choice=chosen(manifest))
    assert ended.value == 42
    receipt = ended.receipt
    assert receipt.start_kind is StartKind.FORKED
    assert (receipt.generation, receipt.checkpoint) == (manifest.generation, EMPTY)
    assert receipt.runtime == "fork"
    assert receipt.worker_id == worker.describe().boot
    assert receipt.attempt == 1
    assert receipt.fallback_reason is None
    assert receipt.predicted_ms == 250
    assert receipt.start_ms > 0
    assert receipt.total_ms > 0


async def test_what_the_checkpoint_imported_is_there_and_what_it_lacks_is_in_the_receipt(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def loaded() -> bool:
        import sys

        before = "decimal" in sys.modules
        import iniconfig  # noqa: F401 - a small package that is in no checkpoint

        return before

    ended = await caller.call(loaded, choice=chosen(manifest, DECIMALS))
    assert ended.value is True
    assert ended.receipt.imports_missed == ["iniconfig"]
    assert ended.receipt.import_ms > 0


async def test_without_a_generation_the_call_starts_cold(
    bare_worker: Worker, caller: Caller
) -> None:
    ended = await caller.call(os.getpid)
    assert ended.value != os.getpid()
    assert ended.receipt.start_kind is StartKind.COLD
    assert ended.receipt.fallback_reason is None


async def test_disabled_optimized_execution_is_a_cold_start(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    ended = await caller.call(
        os.getpid, choice=Choice(cold_s=1.5), disable_optimized_execution=True
    )
    assert ended.receipt.start_kind is StartKind.COLD
    assert ended.receipt.predicted_ms == 1500


async def test_output_of_every_origin_arrives_in_order(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def talk() -> None:
        import os
        import subprocess
        import sys

        os.write(1, b"fd\n")
        subprocess.run(["echo", "child"], check=True)
        print("py", "\u017elu\u0165 \U0001f4a9 \udc80 \x00")
        print("to stderr", file=sys.stderr)

    ended = await caller.call(talk, choice=chosen(manifest))
    assert ended.stdout == "fd\nchild\npy žluť 💩 \\udc80 \x00\n"
    assert ended.stderr == "to stderr\n"


async def test_output_arrives_while_the_function_runs(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    def wait(path: Path) -> None:
        import time

        print("waiting")
        while not path.exists():
            time.sleep(0.01)

    gate = tmp_path / "gate"
    call = await caller.spawn(wait, gate, choice=chosen(manifest))
    await caller.until(call, lambda seen: text_of(seen.events, "stdout") == "waiting\n")
    gate.touch()
    assert (await caller.end_of(call)).stdout == "waiting\n"


async def test_a_function_that_prints_without_measure_returns_and_its_middle_is_left_out(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def shout() -> int:
        print("first")
        print("x" * 10_000_000)
        print("last")
        return 1

    ended = await caller.call(shout, choice=chosen(manifest))
    assert ended.value == 1
    assert ended.stdout.startswith("first\n")
    assert ended.stdout.endswith("last\n")
    assert "bytes of output left out here" in ended.stdout
    assert len(ended.stdout) < 1_100_000


async def test_an_exception_comes_back_as_it_was(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def fail() -> None:
        raise ValueError("né")

    ended = await caller.call(fail, choice=chosen(manifest))
    assert ended.state is State.FAILED
    assert (ended.error.kind, ended.error.type) == (ErrorKind.EXCEPTION, "ValueError")
    assert ended.body


@pytest.mark.parametrize(
    ("function", "said", "detail"),
    [
        (lambda: os._exit(9), "exit code 9", ("exit_code", 9)),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV", ("signal", "SIGSEGV")),
    ],
)
async def test_a_sandbox_that_dies_is_told_with_its_last_words_and_not_run_again(
    worker: Worker,
    caller: Caller,
    manifest: Manifest,
    tmp_path: Path,
    function: Callable[[], Any],
    said: str,
    detail: tuple[str, Any],
) -> None:
    def die(counter: Path) -> None:
        with counter.open("a") as file:
            file.write("x")
        print("last words")
        function()

    counter = tmp_path / "counter"
    ended = await caller.call(die, counter, choice=chosen(manifest))
    assert ended.error.kind is ErrorKind.SANDBOX_DIED
    assert said in ended.error.message
    assert ended.error.details[detail[0]] == detail[1]
    assert "last words" in ended.error.details["last_lines"]
    assert "last words" in ended.stdout
    assert counter.read_text() == "x"
    assert (await caller.call(lambda: 1, choice=chosen(manifest))).value == 1


async def test_a_timeout_is_kept_from_outside_whatever_the_function_swallows(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    def stay(path: Path) -> None:
        import contextlib
        import os
        import time

        path.write_text(str(os.getpid()))
        print("said")
        while True:
            with contextlib.suppress(Exception):
                time.sleep(60)

    path = tmp_path / "pid"
    ended = await caller.call(stay, path, choice=chosen(manifest), timeout=2.0)
    assert ended.error.kind is ErrorKind.TIMEOUT
    assert "2 s" in ended.error.message
    assert (ended.receipt.peak_memory_mb or 0) > 1
    assert ended.stdout == "said\n"
    assert not alive(int(path.read_text()))


async def test_a_cancelled_call_is_killed_with_its_children(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    def stay(path: Path) -> None:
        import subprocess
        import time

        child = subprocess.Popen(["sleep", "600"])
        path.write_text(str(child.pid))
        print("up")
        time.sleep(600)

    path = tmp_path / "pid"
    call = await caller.spawn(stay, path, choice=chosen(manifest), timeout=600)
    await caller.until(call, lambda seen: "up" in text_of(seen.events, "stdout"))
    assert await caller.store.cancel(call, "enough") is State.RUNNING
    ended = await caller.end_of(call)
    assert ended.state is State.CANCELLED
    assert ended.error.kind is ErrorKind.CANCELLED
    assert "enough" in ended.error.message
    await until(lambda: not alive(int(path.read_text())))


async def test_a_process_left_behind_holds_up_neither_the_answer_nor_the_slot(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def leave() -> int:
        import subprocess

        print("mine")
        return subprocess.Popen(["sleep", "600"]).pid

    ended = await caller.call(leave, choice=chosen(manifest))
    assert ended.stdout == "mine\n"
    await until(lambda: not alive(ended.value))
    await until(lambda: worker.describe().free_slots == 2)


async def test_calls_run_side_by_side_and_no_more_than_there_are_slots(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    def meet(folder: Path) -> None:
        import time
        import uuid

        mine = folder / uuid.uuid4().hex
        mine.touch()
        while not (folder / "gate").exists():
            time.sleep(0.01)

    calls = [await caller.spawn(meet, tmp_path, choice=chosen(manifest)) for _ in range(5)]
    await until(
        lambda: len([*tmp_path.glob("*[0-9a-f]")]) >= 2 and worker.describe().free_slots == 0
    )
    states = [(await caller.until(call, lambda _: True)).record.state for call in calls]
    assert states.count(State.QUEUED) == 3
    (tmp_path / "gate").touch()
    for call in calls:
        assert (await caller.end_of(call)).state is State.SUCCEEDED


async def test_a_call_that_needs_more_memory_than_is_free_waits(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    def wait(path: Path) -> None:
        import time

        while not path.exists():
            time.sleep(0.01)

    total = worker.describe().memory_total
    first = await caller.spawn(wait, tmp_path / "gate", choice=chosen(manifest), memory=total)
    await caller.until(first, lambda seen: seen.record.state is State.RUNNING)
    second = await caller.spawn(os.getpid, choice=chosen(manifest), memory=total)
    assert (await caller.until(second, lambda _: True)).record.state is State.QUEUED
    (tmp_path / "gate").touch()
    assert (await caller.end_of(second)).state is State.SUCCEEDED


async def test_a_large_payload_and_a_large_result_go_through_the_blob_store(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    ended = await caller.call(lambda data: data[::-1], b"ab" * 500_000, choice=chosen(manifest))
    assert ended.value == b"ba" * 500_000
    assert ended.snapshot.record.result_blob
    assert not ended.snapshot.record.result


async def test_a_pin_that_is_not_held_is_refused_and_never_started_cold(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    ended = await caller.call(
        os.getpid,
        choice=Choice(manifest.generation, "checkpoint_9", pinned=True),
        checkpoint_id="checkpoint_9",
    )
    assert ended.error.kind is ErrorKind.INVALID_REQUEST
    assert "checkpoint_9" in ended.error.message
    assert ended.receipt.start_kind is None


async def test_a_choice_of_another_generation_is_priced_again(
    worker: Worker, caller: Caller, manifest: Manifest, open_store: Any
) -> None:
    choice = Choice("20000101T000000-00000000", "checkpoint_7", predicted_s=9.0)
    ended = await caller.call(os.getpid, choice=choice)
    assert ended.receipt.start_kind is StartKind.FORKED
    assert ended.receipt.generation == manifest.generation
    assert ended.receipt.fallback_reason is not None
    assert "checkpoint_7" in ended.receipt.fallback_reason


async def test_code_of_another_python_is_refused_by_its_version(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    record = caller.record(os.getpid, choice=chosen(manifest))
    ended = await caller.end_of(await caller.enqueue(replace(record, python="3.99")))
    assert ended.error.kind is ErrorKind.INCOMPATIBLE_PYTHON
    assert "3.99" in ended.error.message


async def test_a_call_without_a_network_is_refused_where_it_cannot_be_had(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    ended = await caller.call(os.getpid, choice=chosen(manifest), network="none")
    assert ended.error.kind is ErrorKind.INVALID_REQUEST
    assert "network" in ended.error.message


async def test_nothing_of_one_call_is_seen_by_the_next(
    worker: Worker, caller: Caller, manifest: Manifest
) -> None:
    def look() -> tuple[str | None, str]:
        import os

        seen = os.environ.get("TOKEN"), str(Path.cwd())
        os.environ["TOKEN"] = "s"
        os.chdir("/")
        return seen

    first = await caller.call(look, choice=chosen(manifest))
    second = await caller.call(look, choice=chosen(manifest))
    assert first.value[0] is None
    assert second.value[0] is None
    assert second.value[1] != "/"


async def test_the_worker_is_advertised_with_what_it_holds_and_gone_after_its_end(
    runtime: ForkRuntime,
    manifest: Manifest,
    start_worker: StartWorker,
    caller: Caller,
    tmp_path: Path,
) -> None:
    async with start_worker(runtime, artifacts=tmp_path / "generation") as worker:
        await until(lambda: len(worker.describe().pool) == 2)
        async with asyncio.timeout(SURELY):
            while True:
                seen = await caller.store.workers()
                if seen and len(seen[0].pool) == 2:
                    break
                await asyncio.sleep(0.05)
        (record,) = seen
        assert record.boot == worker.describe().boot
        assert record.slots == 2
        (facts,) = record.generations
        assert facts.catalogue_sha256 == manifest.catalogue_sha256
        assert sorted(facts.checkpoints) == [EMPTY, DECIMALS]
    assert await caller.store.workers() == []


async def test_a_worker_that_drains_finishes_what_runs_and_takes_no_more(
    runtime: ForkRuntime, start_worker: StartWorker, caller: Caller, tmp_path: Path
) -> None:
    def wait(path: Path) -> str:
        import time

        print("up")
        while not path.exists():
            time.sleep(0.01)
        return "done"

    gate = tmp_path / "gate"
    async with start_worker(runtime, drain_grace=SURELY) as worker:
        call = await caller.spawn(wait, gate)
        await caller.until(call, lambda seen: "up" in text_of(seen.events, "stdout"))
        draining = asyncio.create_task(worker._consumer.drain(SURELY))
        await asyncio.sleep(0)
        late = await caller.spawn(os.getpid)
        gate.touch()
        assert (await caller.end_of(call)).value == "done"
        await draining
    assert (await caller.until(late, lambda _: True)).record.state is State.QUEUED


async def test_a_call_that_outlives_the_grace_is_ended_and_its_caller_told(
    runtime: ForkRuntime, start_worker: StartWorker, caller: Caller
) -> None:
    async with start_worker(runtime, drain_grace=0.1):
        call = await caller.spawn(time.sleep, 600)
        await caller.until(call, lambda seen: seen.record.state is State.RUNNING)
    ended = await caller.end_of(call)
    assert ended.error.kind is ErrorKind.WORKER_LOST
    assert "told to stop" in ended.error.message


async def test_a_generation_that_is_replaced_is_swapped_in_while_calls_go_on(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    fresh = write_generation(
        tmp_path / "generation",
        {EMPTY: [], "checkpoint_5": ["fractions"]},
        created="20270101T000000",
    )
    await until(lambda: worker.describe().generations[0].generation == fresh.generation)
    ended = await caller.call(os.getpid, choice=chosen(manifest, DECIMALS))
    assert ended.receipt.generation == fresh.generation
    ended = await caller.call(os.getpid, choice=chosen(fresh, "checkpoint_5"))
    assert ended.receipt.checkpoint == "checkpoint_5"


async def test_a_generation_that_cannot_be_read_leaves_the_old_one_in_service(
    worker: Worker, caller: Caller, manifest: Manifest, tmp_path: Path
) -> None:
    (tmp_path / "generation" / "manifest.json").write_text("{")
    await until(lambda: any("manifest.json" in note for note in worker.describe().notes))
    assert not worker.describe().error  # it can run calls, and the gateway must know that
    ended = await caller.call(os.getpid, choice=chosen(manifest, DECIMALS))
    assert ended.receipt.checkpoint == DECIMALS


@pytest.mark.parametrize("broken", ["manifest.json", "catalogue.json", None])
async def test_without_a_generation_that_can_be_read_calls_start_cold(
    runtime: ForkRuntime,
    start_worker: StartWorker,
    caller: Caller,
    tmp_path: Path,
    broken: str | None,
) -> None:
    folder = tmp_path / "generation"
    folder.mkdir()
    if broken is not None:
        write_generation(folder, {EMPTY: []})
        (folder / broken).write_text("{")
    async with start_worker(runtime, artifacts=folder) as worker:
        await until(lambda: worker.describe().holding.problem)
        assert (broken or "manifest.json") in worker.describe().holding.problem
        assert not worker.describe().error
        assert (await caller.call(os.getpid)).receipt.start_kind is StartKind.COLD


async def test_a_checkpoint_that_cannot_be_imported_is_refused_and_the_others_serve(
    runtime: ForkRuntime, start_worker: StartWorker, caller: Caller, tmp_path: Path
) -> None:
    folder = tmp_path / "generation"
    manifest = write_generation(folder, {EMPTY: [], "checkpoint_1": ["no_such_module"]})
    async with start_worker(runtime, artifacts=folder) as worker:
        await until(lambda: worker.describe().pool and worker.describe().notes)
        await until(lambda: any("no_such_module" in note for note in worker.describe().notes))
        ended = await caller.call(os.getpid, choice=chosen(manifest, "checkpoint_1"))
        assert ended.receipt.checkpoint == EMPTY
        assert "no_such_module" in (ended.receipt.fallback_reason or "")


async def test_the_program_takes_calls_and_drains_on_sigterm(
    valkey: Any, caller: Caller, tmp_path: Path, short_path: Path
) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "READIE_REDIS_URL": valkey.socket_url,
        "READIE_DATA_DIR": str(short_path),
        "READIE_BLOB_URL": (tmp_path / "blobs").as_uri(),
        "READIE_RUNTIME": "fork",
        "READIE_LOG_FORMAT": "json",
    }
    program = await asyncio.create_subprocess_exec(
        *tied(sys.executable, "-m", "readie_worker"), env=environment, stderr=subprocess.PIPE
    )
    assert program.stderr is not None
    try:
        ended = await caller.call(lambda: "served")
        assert ended.value == "served"
        program.send_signal(signal.SIGTERM)
        log = (await asyncio.wait_for(program.stderr.read(), SURELY)).decode()
        assert await program.wait() == 0, log
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert '"artifacts loaded"' in log
    assert await caller.store.workers() == []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
