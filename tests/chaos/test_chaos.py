"""Parts are stopped and killed while calls flow. Every call that was accepted is told its end.

The usual run is short and of one seed; ``make chaos`` runs longer and draws one. It is printed.
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore
from support.chaos import END_S, TOKEN, Chaos
from support.redis_servers import RedisServer

SECONDS = float(os.environ.get("CHAOS_SECONDS", "8"))
SEED = os.environ.get("CHAOS_SEED", "20260101")


async def keys_without_end(server: RedisServer) -> list[str]:
    """What would stay for ever, once nobody looks after a parked call any more."""
    store, client = CallStore(connect(server.socket_url)), connect(server.socket_url)
    for letter in await store.dead("cpu", TOKEN):
        await store.drop_dead(letter.call_id)
    names = [name.decode() async for name in client.scan_iter("*")]
    found = [name for name in names if await client.ttl(name) == -1]
    await store.close()
    await client.aclose()
    return found


@pytest.mark.timeout(SECONDS + 3 * END_S)  # each of its waits has a deadline of its own
def test_whatever_dies_each_call_runs_as_often_as_it_may_and_is_told_its_end(
    own_valkey: Callable[..., RedisServer], short_path: Path
) -> None:
    seed = int(SEED) if SEED.isdecimal() else random.SystemRandom().randrange(1 << 32)
    print(f"\nchaos for {SECONDS:g} s from seed {seed}")
    short_path.chmod(0o755)  # sandboxes write into it
    server = own_valkey(persist=True)
    chaos = Chaos(server, short_path, seed)
    try:
        chaos.run(SECONDS)
        print(chaos.figures)
        assert chaos.sent
        for sent in chaos.sent:
            runs = chaos.runs_of(sent)
            assert runs <= 1 + sent.retries, f"{sent} ran {runs} times, seed {seed}"
            if sent.state == "succeeded" and not sent.session:
                assert (runs >= 1, sent.value) == (True, sent.number), f"{sent}, seed {seed}"
        for turns in chaos.turns_by_session().values():
            # Those that ran did so in the order in which they were sent, and on one state.
            begun = [sent for sent in turns if chaos.runs_of(sent)]
            for turn, sent in enumerate(begun, start=1):
                assert sent.state != "succeeded" or sent.value == turn, f"{turns}, seed {seed}"
            assert begun == turns[: len(begun)], f"{turns}, seed {seed}"
    finally:
        chaos.stop()
    assert asyncio.run(keys_without_end(server)) == [], f"seed {seed}"
