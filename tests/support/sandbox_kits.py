"""What the conformance suite needs of each sandbox runtime: one kit a runtime."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from readie_worker.sandbox.api import Checkpoint, Limits, Runtime, Sandbox, SandboxSpec
from readie_worker.sandbox.fork import ForkRuntime
from support.executor_driver import ExecutorDriver, driven
from support.gvisor_kit import GVisorKit
from support.interpreters import interpreter_with

MEBIBYTE = 1 << 20
_numbers = itertools.count(1)


class Kit(Protocol):
    """One runtime, ready to be opened, whose sandboxes can import the test's own modules."""

    @property
    def runtime(self) -> Runtime: ...

    async def checkpoint(self, *imports: str) -> Checkpoint:
        """Make a checkpoint with these imports and have the runtime adopt it."""


MakeKit = Callable[[Path, Mapping[str, str]], Kit]


@dataclass
class Running:
    """A sandbox and a driver of its executor."""

    sandbox: Sandbox
    driver: ExecutorDriver


class Bench:
    """A kit whose runtime is open, and everything started from it; all of it ends with the test."""

    def __init__(self, kit: Kit, stack: AsyncExitStack) -> None:
        self.kit = kit
        self.runtime = kit.runtime
        self._stack = stack

    async def checkpoint(self, *imports: str) -> Checkpoint:
        return await self.kit.checkpoint(*imports)

    async def sandbox(
        self, checkpoint: Checkpoint | None = None, limits: Limits | None = None
    ) -> Sandbox:
        if checkpoint is None:
            sandbox = await self.runtime.cold(new_spec(limits))
        else:
            sandbox = await self.runtime.restore(checkpoint, new_spec(limits))
        self._stack.push_async_callback(sandbox.destroy)
        return sandbox

    async def start(
        self, checkpoint: Checkpoint | None = None, limits: Limits | None = None
    ) -> Running:
        """A cold or restored sandbox whose executor has said HELLO."""
        sandbox = await self.sandbox(checkpoint, limits)
        driver = await self._stack.enter_async_context(
            driven(sandbox.connection, sandbox.stdout, sandbox.stderr)
        )
        await driver.hello()
        return Running(sandbox, driver)


def new_spec(limits: Limits | None = None) -> SandboxSpec:
    return SandboxSpec(
        id=f"readie-test-{next(_numbers)}",
        limits=limits or Limits(memory=1024 * MEBIBYTE),
        network="none",
    )


@asynccontextmanager
async def open_bench(kit: Kit) -> AsyncIterator[Bench]:
    await kit.runtime.open()
    try:
        async with AsyncExitStack() as stack:
            yield Bench(kit, stack)
    finally:
        await kit.runtime.close()


class ForkKit:
    """The fork runtime. ``modules``, name → source, are importable in its sandboxes."""

    def __init__(self, folder: Path, modules: Mapping[str, str], **options: object) -> None:
        python = interpreter_with(folder / "python", modules) if modules else Path(sys.executable)
        self.runtime = ForkRuntime(folder / "run", python=str(python), **options)  # type: ignore[arg-type]

    async def checkpoint(self, *imports: str) -> Checkpoint:
        checkpoint = Checkpoint(f"generation/checkpoint_{next(_numbers)}", imports)
        await self.runtime.adopt(checkpoint)
        return checkpoint


KITS: dict[str, MakeKit] = {"fork": ForkKit, "gvisor": GVisorKit}


async def gather_calls(runnings: list[Running], function: Callable[[], object]) -> list[object]:
    """Run the function in all sandboxes at the same time; the values in the sandboxes' order."""
    replies = await asyncio.gather(*(running.driver.call(function) for running in runnings))
    return [reply.value for reply in replies]
