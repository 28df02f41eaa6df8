"""The conformance suite runs once for each runtime; see `support.sandbox_kits`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.sandbox_kits import KITS, Bench, open_bench

OpenBench = Callable[..., Awaitable[Bench]]


@pytest.fixture(params=sorted(KITS))
def runtime_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def open_runtime(runtime_name: str, short_path: Path) -> AsyncIterator[OpenBench]:
    """Opens the runtime; ``modules`` (name → source) are importable in its sandboxes."""
    async with AsyncExitStack() as stack:

        async def open_it(modules: Mapping[str, str] | None = None) -> Bench:
            kit = KITS[runtime_name](short_path, modules or {})
            return await stack.enter_async_context(open_bench(kit))

        yield open_it


@pytest.fixture
async def bench(open_runtime: OpenBench) -> Bench:
    """An open runtime without modules of the test's own."""
    return await open_runtime()
