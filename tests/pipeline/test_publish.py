"""Generations into a bucket: by publishers that die anywhere, race, or meet stores that lie."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from readie_infra.bucket import Bucket, FoundPointer, SigningKey, Trust, UntrustedError
from readie_infra.bucket.surveying import generations
from readie_infra.objects import (
    ObjectConflictError,
    ObjectStore,
    ObjectStoreUnavailableError,
    UnfitStoreError,
    open_objects,
)
from readie_pipeline.errors import LostRaceError, PublishError
from readie_pipeline.publish.checking import faults
from readie_pipeline.publish.collecting import collect
from readie_pipeline.publish.pointing import read_pointer
from readie_pipeline.publish.publishing import Published, publish, roll_back
from readie_pipeline.publish.stocktaking import Stock
from readie_wire.publication import ANY_ROOTFS, INTENTS, POINTERS, manifest_key, pointer_key
from support.calling import SURELY
from support.generations import EMPTY
from support.published import IMAGE, DyingStore, Killed, quietly, stock_of, write_captured

PUBLISHERS = 8
HOUR = 3_600.0
OLD, NEW = "20260101T000000", "20260202T000000"


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_objects((tmp_path / "bucket").as_uri())
    return open_objects(request.getfixturevalue("s3").make_bucket())


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.create(tmp_path_factory.mktemp("keys") / "key.pem")


@pytest.fixture
def old(tmp_path: Path) -> Stock:
    write_captured(tmp_path / "old", {EMPTY: [], "checkpoint_1": ["json"]}, created=OLD)
    return stock_of(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Stock:
    write_captured(tmp_path / "new", {EMPTY: []}, created=NEW)
    return stock_of(tmp_path / "new")


def current(store: ObjectStore) -> FoundPointer:
    found = read_pointer(store, "cpu", ANY_ROOTFS)
    assert found is not None
    return found


def is_whole(store: ObjectStore, key: SigningKey) -> bool:
    """Whether what is current can be fetched, every byte of it as it was signed."""
    bucket = Bucket(store, Trust.of([key.public]))
    listed = bucket.packing_list("cpu", ANY_ROOTFS, current(store).pointer.target)
    return not faults(bucket, listed, quietly)


def test_a_published_generation_is_current_signed_and_whole(
    store: ObjectStore, key: SigningKey, old: Stock
) -> None:
    done = publish(store, old, key, quietly)
    assert current(store).pointer == done.pointer
    assert done.pointer.target.generation == old.manifest.generation
    assert is_whole(store, key)
    # A hundred thousand zeros in each image are not stored as such.
    assert done.sent < old.listed.size / 2
    assert list(store.list(INTENTS)) == []
    assert publish(store, old, key, quietly).unchanged


def test_a_next_generation_sends_only_what_has_changed(
    store: ObjectStore, key: SigningKey, old: Stock, tmp_path: Path
) -> None:
    publish(store, old, key, quietly)
    kept = (tmp_path / "old" / "checkpoints" / EMPTY / IMAGE).read_bytes()
    write_captured(
        tmp_path / "next", {EMPTY: [], "checkpoint_1": ["json"]}, {EMPTY: kept}, created=NEW
    )
    done = publish(store, stock_of(tmp_path / "next"), key, quietly)
    assert done.pointer.previous == current(store).pointer.previous
    assert done.pointer.previous is not None
    assert done.pointer.previous.generation == old.manifest.generation
    assert 0 < done.sent < 60_000


@pytest.mark.parametrize("last_words", [False, True])
def test_a_publisher_that_dies_after_any_operation_changes_nothing_and_can_be_run_again(
    store: ObjectStore, key: SigningKey, old: Stock, new: Stock, last_words: bool
) -> None:
    publish(store, old, key, quietly)
    before = current(store)
    deaths = 0
    while True:
        dying = cast(ObjectStore, DyingStore(store, deaths, last_words=last_words))
        try:
            publish(dying, new, key, quietly)
        except Killed:
            deaths += 1
        else:
            break
        after = current(store)
        assert after.pointer.target in (before.pointer.target, _target_of(store, new))
        assert is_whole(store, key)
        if after.pointer != before.pointer:  # it died after its last step, whose answer it missed
            break
    assert deaths > 2 * len(new.listed.files)
    publish(store, new, key, quietly)
    assert current(store).pointer.target.generation == new.manifest.generation
    assert is_whole(store, key)
    # What the dead left behind is collected with age, and nothing else is.
    collect(store, min_age_s=HOUR, keep=1, now=_later(2))
    collect(store, min_age_s=HOUR, keep=1, now=_later(4))
    assert not list(store.list(INTENTS))
    assert not list(store.list("probes/"))
    assert is_whole(store, key)


def _target_of(store: ObjectStore, stock: Stock) -> object:
    held = [
        one.target
        for one in generations(store, Trust(unsigned=True))
        if one.target.generation == stock.manifest.generation
    ]
    return held[0] if held else None


def test_of_eight_publishers_one_wins_and_seven_say_so(
    store: ObjectStore, key: SigningKey, tmp_path: Path
) -> None:
    stocks = []
    for n in range(PUBLISHERS):
        write_captured(tmp_path / f"g{n}", {EMPTY: []}, created=f"2026010{n}T000000")
        stocks.append(stock_of(tmp_path / f"g{n}"))
    start = threading.Barrier(PUBLISHERS, timeout=SURELY)
    at_the_end = threading.Barrier(PUBLISHERS, timeout=SURELY)
    ends: list[Published | Exception] = []

    def race(stock: Stock) -> None:
        start.wait()

        def together(names: Sequence[str], _: str) -> Iterator[str]:
            yield from names
            at_the_end.wait()  # all have read the pointer that they are about to replace

        try:
            ends.append(publish(store, stock, key, together))
        except (PublishError, ObjectStoreUnavailableError) as error:
            ends.append(error)

    racers = [threading.Thread(target=race, args=(stock,)) for stock in stocks]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    won = [end for end in ends if isinstance(end, Published)]
    lost = [end for end in ends if isinstance(end, LostRaceError)]
    assert (len(won), len(lost)) == (1, PUBLISHERS - 1)
    assert current(store).pointer == won[0].pointer
    winner = won[0].pointer.target.generation
    assert all(f"another publisher made {winner} current" in str(error) for error in lost)
    assert is_whole(store, key)


class Forgetful:
    """A store whose conditional puts happen, and are then answered with an error."""

    def __init__(self, store: ObjectStore, error: type[Exception], calls: int = 1) -> None:
        self._store = store
        self._error = error
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if name not in ("put_if_absent", "put_if_match"):
            return operation

        def forgotten(key: str, *rest: Any) -> None:
            operation(key, *rest)
            if key.startswith(POINTERS) and self._calls:
                self._calls -= 1
                raise self._error(key, "the answer got lost")

        return forgotten


@pytest.mark.parametrize("error", [ObjectConflictError, ObjectStoreUnavailableError])
def test_ones_own_success_is_recognised_behind_an_error(
    store: ObjectStore, key: SigningKey, old: Stock, new: Stock, error: type[Exception]
) -> None:
    forgetful = cast(ObjectStore, Forgetful(store, error))
    first = publish(forgetful, old, key, quietly)
    assert current(store).pointer == first.pointer
    forgetful = cast(ObjectStore, Forgetful(store, error))
    assert publish(forgetful, new, key, quietly).pointer == current(store).pointer


def test_a_store_that_ignores_conditions_is_not_published_to(
    store: ObjectStore, key: SigningKey, old: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "put_if_match", lambda key, data, _: store.put(key, data))
    with pytest.raises(UnfitStoreError, match="ignores If-Match"):
        publish(store, old, key, quietly)
    assert list(store.list("")) == []


def test_an_object_that_vanished_keeps_the_pointer_where_it_is(
    store: ObjectStore, key: SigningKey, old: Stock, new: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, old, key, quietly)
    before = current(store)
    put = store.put
    victim = new.listed.file(f"checkpoints/{EMPTY}/{IMAGE}").key
    monkeypatch.setattr(store, "put", lambda key, source: key == victim or put(key, source))
    with pytest.raises(PublishError, match=victim):
        publish(store, new, key, quietly)
    assert current(store) == before


def test_a_rollback_brings_the_previous_one_back_and_a_second_one_undoes_it(
    store: ObjectStore, key: SigningKey, old: Stock, new: Stock
) -> None:
    with pytest.raises(PublishError, match="nothing is published"):
        roll_back(store, "cpu", ANY_ROOTFS)
    publish(store, old, key, quietly)
    with pytest.raises(PublishError, match="no previous generation"):
        roll_back(store, "cpu", ANY_ROOTFS)
    publish(store, new, key, quietly)
    roll_back(store, "cpu", ANY_ROOTFS)
    assert current(store).pointer.target.generation == old.manifest.generation
    assert is_whole(store, key)
    roll_back(store, "cpu", ANY_ROOTFS, new.manifest.generation)
    assert current(store).pointer.target.generation == new.manifest.generation
    with pytest.raises(PublishError, match="current already"):
        roll_back(store, "cpu", ANY_ROOTFS, new.manifest.generation)
    with pytest.raises(PublishError, match="is not in"):
        roll_back(store, "cpu", ANY_ROOTFS, "20200101T000000-00000000")


def _later(hours: float) -> float:
    return time.time() + hours * HOUR


def test_what_the_bucket_lost_of_the_current_generation_is_sent_again(
    store: ObjectStore, key: SigningKey, old: Stock
) -> None:
    publish(store, old, key, quietly)
    before = current(store)
    store.delete(old.listed.file(f"checkpoints/{EMPTY}/{IMAGE}").key)
    assert not is_whole(store, key)
    done = publish(store, old, key, quietly)
    assert done.unchanged
    assert done.sent > 50_000
    assert current(store) == before
    assert is_whole(store, key)


def test_an_object_that_the_store_cut_short_is_not_taken_for_whole_by_the_next_try(
    store: ObjectStore, key: SigningKey, old: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put
    victim = old.listed.file(f"checkpoints/{EMPTY}/{IMAGE}").key

    def cutting(at: str, source: bytes | Path) -> None:
        put(at, source.read_bytes()[:-9] if at == victim and isinstance(source, Path) else source)

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", cutting)
        with pytest.raises(PublishError, match=victim):
            publish(store, old, key, quietly)
    publish(store, old, key, quietly)
    assert is_whole(store, key)


def test_a_list_that_nobody_can_read_is_replaced_and_another_one_is_not(
    store: ObjectStore, key: SigningKey, old: Stock, tmp_path: Path
) -> None:
    publish(store, old, key, quietly)
    place = manifest_key("cpu", old.manifest.generation)
    store.put(place, store.get(place).data[:-50])
    assert publish(store, old, key, quietly).unchanged
    assert is_whole(store, key)
    stranger = SigningKey.create(tmp_path / "stranger.pem")
    with pytest.raises(PublishError, match="another signature"):
        publish(store, old, stranger, quietly)


def test_a_pointer_that_nobody_can_read_is_named_with_what_helps(
    store: ObjectStore, key: SigningKey, old: Stock
) -> None:
    place = pointer_key("cpu", ANY_ROOTFS)
    store.put(place, b"{")
    with pytest.raises(UntrustedError, match=f"delete {place} and publish again"):
        publish(store, old, key, quietly)
