"""The modes for runtimes that save a whole process: ready, ticket, and on as a fresh clone."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.executor_driver import DEADLINE_S, ExecutorDriver, driven
from support.interpreters import interpreter_with
from support.processes import tied

Capture = Callable[..., Awaitable[asyncio.subprocess.Process]]
TICKET = {"clone": "clone-1", "entropy": "ab" * 32, "checkpoint": "generation/checkpoint_1"}


@pytest.fixture
async def capture(short_path: Path) -> AsyncIterator[Capture]:
    """Starts an executor in mode ``capture``; its run directory is the test's short path."""
    processes = []

    async def start(
        imports: str, python: Path = Path(sys.executable), **extra: str
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *tied(python, "-I", "-m", "readie_executor"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "EXECUTOR_MODE": "capture",
                "READIE_PREIMPORT": imports,
                "READIE_RUN_DIR": str(short_path),
                "READIE_FOLDER": str(short_path / "sandbox"),
                **extra,
            },
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> tuple[str, dict[str, Any]]:
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await process.stdout.readline() == b"\n"
        line = await process.stdout.readline()
    word, _, content = line.decode().partition(" ")
    return word, json.loads(content)


def write_ticket(folder: Path, ticket: Mapping[str, object]) -> None:
    (folder / "new").write_text(json.dumps(ticket))
    (folder / "new").rename(folder / "ticket.json")


@contextlib.asynccontextmanager
async def restored(folder: Path) -> AsyncIterator[ExecutorDriver]:
    """The driver of the executor that its ticket lets connect to the run directory's socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "executor.sock"))
        listener.listen(1)
        listener.setblocking(False)
        write_ticket(folder, TICKET)
        async with asyncio.timeout(DEADLINE_S):
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    async with driven(connection, *ended_pipes()) as driver:
        yield driver


def ended_pipes() -> tuple[int, int]:
    """The driver wants output to read; here it goes to the process's own pipes."""
    (first, first_end), (second, second_end) = os.pipe(), os.pipe()
    os.close(first_end)
    os.close(second_end)
    return first, second


async def test_it_reports_waits_for_its_ticket_and_serves_one_call(
    capture: Capture, short_path: Path
) -> None:
    process = await capture("wave")
    word, report = await line_of(process)
    assert word == "READIE-CAPTURE-READY"
    assert [one["name"] for one in report["imports"]] == ["wave"]
    async with restored(short_path) as driver:
        hello = await driver.hello()
        assert (hello["mode"], hello["checkpoint"]) == ("capture", "generation/checkpoint_1")

        def loaded() -> bool:
            import sys

            return "wave" in sys.modules

        assert (await driver.call(loaded)).value is True
    assert await process.wait() == 0


async def test_a_measuring_ticket_ends_it_at_once(capture: Capture, short_path: Path) -> None:
    process = await capture("wave")
    await line_of(process)
    write_ticket(short_path, {"clone": "clone-1", "measure": True})
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0


async def test_an_incomplete_ticket_is_waited_for(capture: Capture, short_path: Path) -> None:
    process = await capture("wave")
    await line_of(process)
    (short_path / "ticket.json").write_text('{"clone": "cl')
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.05)
    write_ticket(short_path, {"clone": "clone-1", "measure": True})
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0


async def test_what_must_not_be_saved_is_refused_by_name(capture: Capture) -> None:
    process = await capture("wave,no_such_module")
    word, refusal = await line_of(process)
    assert word == "READIE-CAPTURE-REFUSED"
    assert refusal["package"] == "no_such_module"
    assert "ModuleNotFoundError" in refusal["traceback"]
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 3


async def test_every_package_at_fault_is_named_and_no_other(
    capture: Capture, short_path: Path
) -> None:
    modules = {
        "tidy": "",
        "opens": "import os\nPIPE = os.pipe()",
        "starts": "import threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "mends": "import os\nfrom readie_wire import hooks\nFILE = os.dup(2)\n"
        "hooks.before_checkpoint(lambda: os.close(FILE))",
    }
    python = interpreter_with(short_path / "python", modules)
    process = await capture(",".join(modules), python)
    word, refusal = await line_of(process)
    assert word == "READIE-CAPTURE-REFUSED"
    reasons = refusal["reason"].split("; ")
    assert [reason.split()[0] for reason in reasons] == ["opens", "starts"]
    assert "left open" in reasons[0]
    assert "left 1 thread(s) running" in reasons[1]


async def test_the_report_tells_what_hooks_ended_and_which_secrets_were_set(
    capture: Capture, short_path: Path
) -> None:
    modules = {
        "mends": "import os\nfrom readie_wire import hooks\nFILE = os.dup(2)\n"
        "hooks.before_checkpoint(lambda: os.close(FILE))",
        "sets": "import os\nos.environ['SOME_API_KEY'] = 'x'\nos.environ['SOME_LEVEL'] = '1'",
    }
    python = interpreter_with(short_path / "python", modules)
    word, report = await line_of(await capture(",".join(modules), python))
    assert word == "READIE-CAPTURE-READY"
    ended, kept = report["warnings"]
    assert ended.startswith("mends left open: ")
    assert ended.endswith("until a before_checkpoint hook ended that")
    assert kept.startswith("sets set SOME_API_KEY: ")


async def test_an_unknown_mode_is_named(capture: Capture) -> None:
    process = await capture("", EXECUTOR_MODE="poetry")
    _, printed = await process.communicate()
    assert b"'poetry'; choose one of sandbox, zygote, capture, measure" in printed
    assert process.returncode == 2
