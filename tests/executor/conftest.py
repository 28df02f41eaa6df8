"""One executor of its own for each test: `python -m readie_executor` over a socket pair."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.executor_driver import ExecutorDriver, driven
from support.processes import tied

StartExecutor = Callable[[], Awaitable[ExecutorDriver]]


@pytest.fixture
async def start_executor(tmp_path: Path) -> AsyncIterator[StartExecutor]:
    """Starts an executor in mode ``sandbox``, without any runtime around it."""
    async with AsyncExitStack() as stack:
        count = 0

        async def start() -> ExecutorDriver:
            nonlocal count
            count += 1
            ours, theirs = socket.socketpair()
            (out, out_write), (err, err_write) = os.pipe(), os.pipe()
            process = await asyncio.create_subprocess_exec(
                *tied(sys.executable, "-I", "-m", "readie_executor"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                pass_fds=[theirs.fileno()],
                env={
                    "EXECUTOR_MODE": "sandbox",
                    "READIE_CONNECTION": f"fd:{theirs.fileno()}",
                    "READIE_FOLDER": str(tmp_path / f"sandbox-{count}"),
                },
            )
            os.close(out_write)
            os.close(err_write)
            theirs.close()
            driver = await stack.enter_async_context(driven(ours, out, err))

            async def end() -> None:
                if process.returncode is None:
                    process.kill()
                await process.wait()

            stack.push_async_callback(end)
            return driver

        yield start


@pytest.fixture
async def executor(start_executor: StartExecutor) -> ExecutorDriver:
    """An executor that has said HELLO."""
    driver = await start_executor()
    await driver.hello()
    return driver
