"""When containers are created ahead of their starts; with a launcher that only counts."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from readie_worker.sandbox.errors import StartError
from readie_worker.sandbox.gvisor.shelf import Shelf
from support.calling import SURELY


class Launcher:
    def __init__(self) -> None:
        self.created: list[Any] = []

    async def create(self, network: str) -> Any:
        async def remove() -> None:
            made.removed = True

        made = SimpleNamespace(network=network, alive=True, removed=False, remove=remove)
        self.created.append(made)
        return made

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SURELY):
            while len(self.created) < count:
                await asyncio.sleep(0)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
async def shelf(launcher: Launcher) -> AsyncIterator[Shelf]:
    made = Shelf(cast(Any, launcher), "sandbox", 2)
    await launcher.until(2)
    yield made
    await made.close()


async def test_what_was_taken_is_replaced_after_its_start_and_not_beside_it(
    shelf: Shelf, launcher: Launcher
) -> None:
    async with shelf.taken("sandbox") as created:
        assert created is launcher.created[0]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(launcher.created) == 2
    await launcher.until(3)


async def test_a_start_that_fails_is_followed_by_a_replacement_too(
    shelf: Shelf, launcher: Launcher
) -> None:
    with pytest.raises(StartError, match="no luck"):
        async with shelf.taken("sandbox"):
            raise StartError("no luck")
    await launcher.until(3)


async def test_what_died_on_the_shelf_is_removed_and_the_next_one_taken(
    shelf: Shelf, launcher: Launcher
) -> None:
    launcher.created[0].alive = False
    async with shelf.taken("sandbox") as created:
        assert created is launcher.created[1]
    assert launcher.created[0].removed


async def test_another_network_gets_a_container_of_its_own(
    shelf: Shelf, launcher: Launcher
) -> None:
    async with shelf.taken("none") as created:
        assert cast(Any, created) is launcher.created[2]
        assert launcher.created[2].network == "none"


async def test_a_closed_shelf_gives_nothing(shelf: Shelf) -> None:
    await shelf.close()
    with pytest.raises(StartError, match="closed"):
        async with shelf.taken("sandbox"):
            pytest.fail("it gave something")
