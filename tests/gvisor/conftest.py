"""The real runsc of this machine, and an open runtime on it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.gvisor_kit import GVisorKit, real_runsc
from support.sandbox_kits import Bench, open_bench

OpenGVisor = Callable[..., Awaitable[Bench]]


@pytest.fixture(scope="session")
def runsc() -> Path:
    return real_runsc()


@pytest.fixture
async def open_gvisor(short_path: Path) -> AsyncIterator[OpenGVisor]:
    """Opens a runtime; options are those of `GVisorKit`."""
    async with AsyncExitStack() as stack:

        async def open_it(modules: Mapping[str, str] | None = None, **options: object) -> Bench:
            kit = GVisorKit(short_path, modules or {}, **options)  # type: ignore[arg-type]
            return await stack.enter_async_context(open_bench(kit))

        yield open_it


@pytest.fixture
async def bench(open_gvisor: OpenGVisor) -> Bench:
    return await open_gvisor()
