"""Whoever follows a bucket is told at once that something was published."""

import asyncio
from collections.abc import Callable

from readie_infra.connecting import connect
from readie_infra.nudges import Nudges
from readie_infra.store import CallStore
from readie_wire.keys import Keys
from support.calling import SURELY
from support.redis_servers import RedisServer

NEVER = 100 * SURELY  # a pause that only a nudge can end within a test


async def test_an_announcement_ends_the_pause_of_everybody_and_once(store: CallStore) -> None:
    listeners = [Nudges(store, boot) for boot in ("worker-a", "worker-b")]
    async with asyncio.timeout(SURELY):
        await store.announce()
        await asyncio.gather(*(listener.pause(NEVER) for listener in listeners))
        pauses = [asyncio.create_task(listener.pause(NEVER)) for listener in listeners]
        await asyncio.sleep(0)
        assert not any(pause.done() for pause in pauses)
        await store.announce()
        await asyncio.gather(*pauses)


async def test_what_is_announced_between_two_pauses_is_not_missed(store: CallStore) -> None:
    listener = Nudges(store, "worker-a")
    await listener.pause(0.01)
    for _ in range(3):
        await store.announce()
    async with asyncio.timeout(SURELY):
        await listener.pause(NEVER)
    await listener.pause(0.01)  # the three were one nudge: this pause lasts


async def test_announcements_are_few_and_end_by_themselves(
    store: CallStore, each_redis: RedisServer
) -> None:
    for _ in range(30):
        await store.announce()
    assert int(each_redis.command("XLEN", Keys().news).lstrip(":")) <= 8
    assert int(each_redis.command("PTTL", Keys().news).lstrip(":")) > 0


async def test_without_a_server_a_pause_is_just_a_pause(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    gone = CallStore(connect(server.socket_url))
    server.stop()
    async with asyncio.timeout(SURELY):
        await Nudges(gone, "worker-a").pause(0.2)
    await gone.close()
