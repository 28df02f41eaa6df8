"""What nothing refers to goes, in two rounds; what anybody may still need stays."""

import time
from pathlib import Path

import pytest

from readie_infra.bucket import SigningKey
from readie_infra.objects import ObjectStore, open_objects
from readie_pipeline.errors import PublishError
from readie_pipeline.publish.collecting import collect
from readie_pipeline.publish.pointing import intending
from readie_pipeline.publish.publishing import publish, roll_back
from readie_pipeline.publish.stocktaking import Stock
from readie_wire.publication import (
    ANY_ROOTFS,
    MARKS,
    ROOTFS,
    Intent,
    Marks,
    manifest_key,
    new_publication_id,
)
from support.generations import EMPTY
from support.published import quietly, stock_of, write_captured

HOUR = 3_600.0


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_objects((tmp_path / "bucket").as_uri())
    return open_objects(request.getfixturevalue("s3").make_bucket())


@pytest.fixture
def stocks(store: ObjectStore, tmp_path: Path) -> list[Stock]:
    """Three generations, published one after the other."""
    key = SigningKey.create(tmp_path / "key.pem")
    made = []
    for n in (1, 2, 3):
        folder = tmp_path / f"generation-{n}"
        write_captured(folder, {EMPTY: [], "checkpoint_1": ["json"]}, created=f"2026010{n}T000000")
        made.append(stock_of(folder))
        publish(store, made[-1], key, quietly)
    return made


def keys(store: ObjectStore) -> set[str]:
    return {entry.key for entry in store.list("")}


def own_keys(stock: Stock, *others: Stock) -> set[str]:
    """What only this generation needs, its manifest included."""
    shared = {key for other in others for key in other.listed.keys}
    key = manifest_key("cpu", stock.manifest.generation)
    return {key, *(stock.listed.keys - shared)}


def test_a_generation_that_nothing_names_goes_after_two_rounds_and_its_age(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    first, second, third = stocks
    doomed = own_keys(first, second, third)
    now = time.time()
    marked = collect(store, min_age_s=HOUR, keep=1, now=now)
    assert (marked.marked, marked.deleted) == (len(doomed), 0)
    assert collect(store, min_age_s=HOUR, keep=1, now=now + HOUR / 2).deleted == 0
    assert doomed <= keys(store)
    done = collect(store, min_age_s=HOUR, keep=1, now=now + 2 * HOUR)
    assert done.deleted == len(doomed)
    assert done.freed > 50_000
    left = keys(store)
    assert not doomed & left
    assert second.listed.keys | third.listed.keys <= left
    roll_back(store, "cpu", ANY_ROOTFS)  # to the second, of which everything is there
    with pytest.raises(PublishError, match="is not in"):
        roll_back(store, "cpu", ANY_ROOTFS, first.manifest.generation)


def test_the_newest_generations_stay_without_a_pointer(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    now = time.time()
    for hours in (0, 2, 4):
        assert collect(store, min_age_s=HOUR, keep=3, now=now + hours * HOUR).deleted == 0


def test_what_is_used_again_is_no_longer_marked(store: ObjectStore, stocks: list[Stock]) -> None:
    now = time.time()
    collect(store, min_age_s=HOUR, keep=1, now=now)
    roll_back(store, "cpu", ANY_ROOTFS, stocks[0].manifest.generation)
    assert collect(store, min_age_s=HOUR, keep=1, now=now + 2 * HOUR).deleted == 0
    assert stocks[0].listed.keys <= keys(store)


def test_a_publication_under_way_keeps_what_it_is_about_to_name(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    now = time.time()
    collect(store, min_age_s=HOUR, keep=1, now=now - 2 * HOUR)
    wanted = sorted(own_keys(stocks[0], *stocks[1:]))
    marks = Marks.load(store.get(MARKS).data)
    assert set(wanted) <= set(marks.unused)
    with intending(store, Intent(new_publication_id(), stocks[0].manifest.generation, wanted)):
        assert collect(store, min_age_s=0.0, keep=1, now=now - 1).deleted == 0
    assert set(wanted) <= keys(store)


def test_a_publisher_keeps_off_what_is_being_deleted(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    key = min(stocks[0].listed.keys)
    store.put(MARKS, Marks({key: 1.0}, [key]).dump())
    intent = Intent(new_publication_id(), stocks[0].manifest.generation, [key])
    with pytest.raises(PublishError, match="gc` is deleting"), intending(store, intent):
        pass


def test_two_collectors_do_not_work_at_once(
    store: ObjectStore, stocks: list[Stock], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put_if_absent

    def late(key: str, data: bytes) -> None:
        if key == MARKS:
            put(key, Marks({"objects/other": 1.0}).dump())
        put(key, data)

    monkeypatch.setattr(store, "put_if_absent", late)
    with pytest.raises(PublishError, match="another gc is at work"):
        collect(store, min_age_s=HOUR, keep=1)


def test_nothing_is_collected_while_a_current_generation_cannot_be_read(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    store.put(manifest_key("cpu", stocks[2].manifest.generation), b"{")
    with pytest.raises(PublishError, match="nothing is collected"):
        collect(store, min_age_s=HOUR, keep=3)


def test_nothing_goes_while_a_newer_release_may_need_it(
    store: ObjectStore, stocks: list[Stock]
) -> None:
    before = keys(store)
    store.put_if_absent(f"{ROOTFS}{'0' * 64}/manifest.json", b"{}")

    with pytest.raises(PublishError, match="newer Readie"):
        collect(store, min_age_s=0, keep=0)

    assert before <= keys(store)
