"""Import sets in the store: counted by day, bounded, and gone when their days are over."""

import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore, recording
from readie_wire.keys import Keys
from support.redis_servers import RedisServer

DAY = "2026-11-29"
WEEK_S = 7 * 86_400.0


async def test_the_counts_of_several_gateways_add_up_with_the_most_frequent_first(
    store: CallStore,
) -> None:
    await store.record_imports(DAY, {'["numpy"]': 1, "[]": 4}, WEEK_S)
    await store.record_imports(DAY, {'["numpy"]': 5}, WEEK_S)
    await store.record_imports("2026-11-28", {'["torch"]': 1}, WEEK_S)
    counts = await store.recorded_imports(DAY)
    assert list(counts.items()) == [(b'["numpy"]', 6), (b"[]", 4)]
    assert await store.recorded_imports("2026-11-01") == {}


async def test_a_full_day_counts_what_it_has_and_leaves_out_what_is_new(
    store: CallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SETS_A_DAY", 3)
    monkeypatch.setattr(recording, "SETS_A_STEP", 2)
    sets = {f'["module_{number}"]': 1 for number in range(5)}
    assert await store.record_imports(DAY, sets, WEEK_S) == 2
    assert await store.record_imports(DAY, sets, WEEK_S) == 2
    assert set((await store.recorded_imports(DAY)).values()) == {2}


async def test_a_day_is_forgotten_by_itself(store: CallStore, each_redis: RedisServer) -> None:
    await store.record_imports(DAY, {"[]": 1}, WEEK_S)
    client = connect(each_redis.socket_url)
    remaining_ms = await client.pttl(Keys().imports(DAY))
    await client.aclose()
    assert 0 < remaining_ms <= WEEK_S * 1000
