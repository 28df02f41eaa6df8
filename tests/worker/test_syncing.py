"""A worker's disk follows a bucket of a real S3 server, and never holds what was not proven."""

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from platform import python_version
from typing import Any, cast

import pytest

from readie_infra.bucket import Bucket, SigningKey, Trust
from readie_infra.objects import (
    ObjectStore,
    ObjectStoreUnavailableError,
    S3Options,
    open_objects,
)
from readie_pipeline.publish.pointing import new_pointer, point, read_pointer
from readie_pipeline.publish.publishing import publish, roll_back
from readie_wire.holdings import RefusalKind
from readie_wire.manifest import Manifest
from readie_wire.publication import ANY_ROOTFS, Target, manifest_key
from readie_worker import syncing
from readie_worker.generations import Machine, read_generation
from readie_worker.local_generations import LocalGenerations
from readie_worker.syncing import BucketSync, Following
from support.calling import until
from support.generations import EMPTY
from support.lying_store import Lie, LyingStore, lying_store
from support.published import IMAGE, quietly, stock_of, write_captured
from support.s3_servers import S3Server

MACHINE = Machine("cpu", "fork", python_version())
CHECKPOINTS = {EMPTY: [], "checkpoint_1": ["json"], "checkpoint_2": ["decimal"]}
FIRST_PAGES = f"checkpoints/checkpoint_2/{IMAGE}"
POLL = 0.05
EVIL = "20260109T000000-e0e0e0e0"

Publish = Callable[..., Manifest]
Follow = Callable[..., AbstractAsyncContextManager[BucketSync]]


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "key.pem")


@pytest.fixture
def bucket_url(s3: S3Server) -> str:
    return s3.make_bucket()


@pytest.fixture
def store(bucket_url: str) -> ObjectStore:
    return open_objects(bucket_url)


@pytest.fixture
def put(store: ObjectStore, key: SigningKey, tmp_path: Path) -> Publish:
    """Capture and publish one more generation; `checkpoint_2` is the one worth most."""

    def put(number: int = 1, *, signed_by: SigningKey | None = key, **changes: Any) -> Manifest:
        folder = tmp_path / f"captured-{number}"
        made = write_captured(
            folder,
            CHECKPOINTS,
            load_times={"decimal": 5.0},
            created=f"2026010{number}T000000",
            **changes,
        )
        publish(store, stock_of(folder), signed_by, quietly)
        return made

    return put


@pytest.fixture
def follow(store: ObjectStore, key: SigningKey, tmp_path: Path) -> Follow:
    """A worker's sync that runs for a block; it uses what it exposes."""

    @asynccontextmanager
    async def follow(
        *,
        read_from: ObjectStore = store,
        disk_budget: int | None = None,
        trust: Trust | None = None,
        in_use: Callable[[], set[str]] = set,
    ) -> AsyncIterator[BucketSync]:
        bucket = Bucket(read_from, trust or Trust.of([key.public]))
        following = Following(bucket, tmp_path / "disk", ANY_ROOTFS, POLL, disk_budget)
        sync = BucketSync(following, MACHINE)
        await sync.open()
        running = asyncio.create_task(sync.run(in_use))
        try:
            yield sync
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return follow


class HeldBack:
    """A store that gives out images only when it is told to."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._pass = threading.Semaphore(0)
        self._all = threading.Event()
        self.ended = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def head(self, key: str) -> object:
        found = self._store.head(key)
        if found is not None and found.size > 10_000:  # an image, not one of the documents
            while not (self._all.is_set() or self.ended or self._pass.acquire(timeout=0.05)):
                pass
        return found

    def let_one_pass(self) -> None:
        self._pass.release()

    def let_all_pass(self) -> None:
        self._all.set()

    def stop(self) -> None:
        self._all.clear()


@pytest.fixture
def held_back(store: ObjectStore) -> Iterator[HeldBack]:
    held = HeldBack(store)
    yield held
    held.ended = True


def served(sync: BucketSync) -> str:
    """The generation that is exposed, once everything of it can be used and is as it was captured."""
    if not (sync.root / "manifest.json").is_file():
        return ""
    generation = read_generation(sync.root.resolve(), MACHINE)
    return "" if generation.refused else generation.id


def arrived(sync: BucketSync) -> set[str]:
    folder = sync.root / "checkpoints"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def same_images(sync: BucketSync, captured: Path) -> bool:
    names = [f"checkpoints/{name}/{IMAGE}" for name in CHECKPOINTS]
    return all((sync.root / name).read_bytes() == (captured / name).read_bytes() for name in names)


async def test_what_is_published_arrives_and_so_does_the_next_one(
    put: Publish, follow: Follow, tmp_path: Path
) -> None:
    async with follow() as sync:
        await until(lambda: "nothing is published for cpu/any" in sync.error)
        first = put(1)
        await until(lambda: served(sync) == first.generation)
        await until(lambda: not sync.error)
        assert same_images(sync, tmp_path / "captured-1")
        second = put(2)
        await until(lambda: served(sync) == second.generation)
        assert same_images(sync, tmp_path / "captured-2")


async def test_a_first_generation_is_served_as_it_arrives_the_most_valuable_first(
    put: Publish, follow: Follow, held_back: HeldBack
) -> None:
    put(1)
    async with follow(read_from=cast(ObjectStore, held_back)) as sync:
        expected: set[str] = set()
        for name in ("checkpoint_2", "checkpoint_1", EMPTY):
            assert arrived(sync) == expected
            expected.add(name)
            held_back.let_one_pass()
            await until(lambda: arrived(sync) == expected)


async def test_a_later_generation_is_served_when_all_of_it_is_there(
    put: Publish, follow: Follow, held_back: HeldBack
) -> None:
    held_back.let_all_pass()
    first = put(1)
    async with follow(read_from=cast(ObjectStore, held_back)) as sync:
        await until(lambda: served(sync) == first.generation)
        held_back.stop()
        second = put(2)
        await until(lambda: any("is arriving" in note for note in sync.notes))
        for _ in CHECKPOINTS:
            assert served(sync) == first.generation
            held_back.let_one_pass()
        await until(lambda: served(sync) == second.generation)


async def test_a_rollback_fetches_nothing_anew(
    put: Publish, follow: Follow, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == first.generation)
        second = put(2)
        await until(lambda: served(sync) == second.generation)
        monkeypatch.setattr(store, "stream", None)
        roll_back(store, "cpu", ANY_ROOTFS)
        await until(lambda: served(sync) == first.generation)
        assert not sync.error


async def test_older_generations_go_once_nobody_uses_them(put: Publish, follow: Follow) -> None:
    used: set[str] = set()
    first = put(1)
    async with follow(in_use=lambda: used) as sync:
        await until(lambda: served(sync) == first.generation)
        used.add(first.generation)
        second = put(2)
        await until(lambda: served(sync) == second.generation)
        third = put(3)
        await until(lambda: served(sync) == third.generation)
        folder = sync.root.parent
        assert (folder / first.generation).is_dir()
        used.clear()
        fourth = put(4)
        await until(lambda: served(sync) == fourth.generation)
        await until(lambda: not (folder / second.generation).exists())
        assert not (folder / first.generation).exists()
        assert (folder / third.generation).is_dir()  # what a rollback would bring back


async def test_of_two_workers_on_one_disk_one_fetches_and_both_serve(
    put: Publish, follow: Follow
) -> None:
    async with follow() as first:
        async with follow() as second:
            made = put(1)
            await until(lambda: served(first) == made.generation == served(second))
            assert not second.error
        made = put(2)
        await until(lambda: served(first) == made.generation)


async def test_another_worker_takes_over_when_the_leader_ends(put: Publish, follow: Follow) -> None:
    async with follow() as leader:
        made = put(1)
        await until(lambda: served(leader) == made.generation)
        async with follow() as other:
            pass
    async with follow() as other:
        made = put(2)
        await until(lambda: served(other) == made.generation)


@pytest.fixture
def liar(s3: S3Server) -> Iterator[LyingStore]:
    with lying_store(s3.port) as proxy:
        yield proxy


@pytest.mark.parametrize("lie", [Lie.BREAKS, Lie.CUT_SHORT, Lie.ZERO_FILLED, Lie.FAILS])
async def test_no_lie_of_the_store_is_ever_served_with_restarts_in_between(
    put: Publish, follow: Follow, liar: LyingStore, bucket_url: str, tmp_path: Path, lie: Lie
) -> None:
    made = put(1)
    lied_to = open_objects(bucket_url, S3Options(endpoint_url=liar.url))
    # Some documents pass, then nothing comes as it was stored.
    liar.tell(None, None, lie)
    for _ in range(2):
        async with follow(read_from=lied_to) as sync:
            await until(lambda: bool(sync.error))
            for name in arrived(sync):
                image = f"checkpoints/{name}/{IMAGE}"
                assert (sync.root / image).read_bytes() == (
                    tmp_path / "captured-1" / image
                ).read_bytes()
    assert liar.told
    liar.tell(None)
    async with follow(read_from=lied_to) as sync:
        await until(lambda: served(sync) == made.generation)
        assert same_images(sync, tmp_path / "captured-1")


async def test_what_the_disk_lost_is_fetched_again_before_it_is_served(
    put: Publish, follow: Follow, tmp_path: Path
) -> None:
    made = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == made.generation)
        await until(lambda: not sync.notes)
    image = sync.root / FIRST_PAGES
    image.write_bytes(bytes(image.stat().st_size))  # the right size, and all zeros
    async with follow() as sync:
        if "checkpoint_2" in arrived(sync):
            assert same_images(sync, tmp_path / "captured-1")
        await until(lambda: served(sync) == made.generation)
        assert same_images(sync, tmp_path / "captured-1")


async def test_a_bucket_that_is_away_leaves_what_is_on_the_disk(
    put: Publish, follow: Follow, liar: LyingStore, tmp_path: Path
) -> None:
    made = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == made.generation)
    away = open_objects((tmp_path / "nothing").as_uri())
    async with follow(read_from=away) as sync:
        assert served(sync) == made.generation
        await until(lambda: "nothing is published" in sync.error)
        assert served(sync) == made.generation


async def test_a_checkpoint_that_finds_no_room_is_left_out_with_the_reason(
    put: Publish, follow: Follow
) -> None:
    put(1)
    async with follow(disk_budget=400_000) as sync:  # two images of 150 kB, and documents
        await until(lambda: arrived(sync) == {"checkpoint_2", "checkpoint_1"})
        left_out = f"{EMPTY} is not synced: it needs"
        await until(lambda: any(left_out in note for note in sync.notes))
        await until(lambda: not sync.error)


async def test_room_is_made_by_removing_what_nobody_uses(put: Publish, follow: Follow) -> None:
    first = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == first.generation)
        second = put(2)
        await until(lambda: served(sync) == second.generation)
        roomy = sync.root.parent
    third = put(3)
    async with follow(disk_budget=1_000_000) as sync:  # two generations, not three
        await until(lambda: served(sync) == third.generation)
    assert not (roomy / first.generation).exists()


async def test_nothing_gives_way_to_what_could_not_be_here_even_alone(
    put: Publish, follow: Follow
) -> None:
    async with follow() as sync:
        first = put(1)
        await until(lambda: served(sync) == first.generation)
    large = {"checkpoint_2": secrets.token_bytes(1_200_000)}
    async with follow(disk_budget=1_000_000) as sync:
        second = put(2, images=large)
        await until(lambda: arrived(sync) == {"checkpoint_1", EMPTY})
        await until(lambda: list(sync.left_out(second.generation)) == ["checkpoint_2"])
        reason = str(sync.left_out(second.generation)["checkpoint_2"])
        assert "it needs 1200" in reason
        assert "of 1000000 (READIE_DISK_BUDGET) are left" in reason
        await until_looked_again(sync)
        assert (sync.root.parent / first.generation).is_dir()


async def test_what_was_left_out_is_brought_once_the_previous_generation_is_not_used_any_more(
    put: Publish, follow: Follow
) -> None:
    used: set[str] = set()
    first = put(1)
    async with follow(disk_budget=800_000, in_use=lambda: used) as sync:  # not quite two
        await until(lambda: served(sync) == first.generation)
        used.add(first.generation)
        await until_looked_again(sync)
        second = put(2)
        await until(lambda: bool(sync.left_out(second.generation)))
        assert {one.kind for one in sync.left_out(second.generation).values()} == {RefusalKind.DISK}
        assert (sync.root.parent / first.generation).is_dir()
        used.clear()
        await until(lambda: served(sync) == second.generation)
        assert not (sync.root.parent / first.generation).exists()
        await until(lambda: not sync.left_out(second.generation) and not sync.state.arriving)


async def test_the_least_recently_used_generation_gives_way_first(
    put: Publish, follow: Follow, store: ObjectStore
) -> None:
    used: set[str] = set()
    async with follow(in_use=lambda: used) as sync:
        made = [put(1)]
        await until(lambda: served(sync) == made[0].generation)
        made.append(put(2))
        await until(lambda: served(sync) == made[1].generation)
        for one in reversed(made):
            used.clear()
            used.add(one.generation)
            await until_looked_again(sync)
        used.clear()
        await until_looked_again(sync)
        local = LocalGenerations(sync.root.parent)
        sync.root.unlink()  # nothing is current
        assert list(local.removable(())) == [made[1].generation, made[0].generation]


def found_below(folder: Path, part: str) -> list[Path]:
    return list(folder.rglob(f"*{part}*"))


async def until_looked_again(sync: BucketSync) -> None:
    """What is in use is taken note of before each look, and each look tells its state anew."""
    under_way = sync.stored
    await until(lambda: sync.stored is not under_way)
    next_one = sync.stored
    await until(lambda: sync.stored is not next_one)


@pytest.mark.parametrize("name", ["../../evil", "checkpoints/a\\..\\evil"])
async def test_a_signed_list_with_a_name_that_climbs_out_writes_nothing_and_changes_nothing(
    put: Publish, follow: Follow, store: ObjectStore, key: SigningKey, tmp_path: Path, name: str
) -> None:
    made = put(1)
    listed = json.loads(stock_of(tmp_path / "captured-1").listed.dump())
    listed["generation"] = EVIL
    listed["files"] = [
        {**file, "name": name if file["name"] == FIRST_PAGES else file["name"]}
        for file in listed["files"]
    ]
    sealed = key.seal(json.dumps(listed)).dump()
    async with follow() as sync:
        await until(lambda: served(sync) == made.generation)
        store.put(manifest_key("cpu", EVIL), sealed)
        base = read_pointer(store, "cpu", ANY_ROOTFS)
        target = Target(EVIL, sha256(sealed).hexdigest())
        point(store, base, new_pointer(base, "cpu", ANY_ROOTFS, target))
        await until(lambda: "not the name of a published file" in sync.error)
        assert served(sync) == made.generation
    assert not found_below(tmp_path, "evil")


async def test_a_generation_that_cannot_be_used_here_leaves_the_old_one(
    put: Publish, follow: Follow
) -> None:
    first = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == first.generation)
        put(2, python="3.99.0")
        await until(lambda: "captured with Python 3.99" in sync.error)
        assert served(sync) == first.generation
        third = put(3)
        await until(lambda: served(sync) == third.generation)
        await until(lambda: not sync.error)


async def test_an_unsigned_or_strange_generation_is_not_followed_unless_that_is_accepted(
    put: Publish, follow: Follow, tmp_path: Path
) -> None:
    first = put(1)
    async with follow() as sync:
        await until(lambda: served(sync) == first.generation)
        put(2, signed_by=None)
        await until(lambda: "signed by nobody" in sync.error)
        put(3, signed_by=SigningKey.create(tmp_path / "stranger.pem"))
        await until(lambda: "none of the keys" in sync.error and "nobody" not in sync.error)
        assert served(sync) == first.generation
    made = put(4, signed_by=None)
    async with follow(trust=Trust(unsigned=True)) as sync:
        await until(lambda: served(sync) == made.generation)


async def test_one_damaged_object_keeps_no_other_checkpoint_of_a_first_generation_away(
    put: Publish, follow: Follow, store: ObjectStore, tmp_path: Path
) -> None:
    made = put(1)
    image = stock_of(tmp_path / "captured-1").listed.file(FIRST_PAGES).key
    right = store.get(image).data
    store.put(image, b"other bytes")
    async with follow() as sync:
        await until(lambda: "does not expand" in sync.error)
        assert arrived(sync) == {"checkpoint_1", EMPTY}
        left_out = sync.left_out(made.generation)
        assert [(name, one.kind) for name, one in left_out.items()] == [
            ("checkpoint_2", RefusalKind.DAMAGED)
        ]
        store.put(image, right)
        await until(lambda: not sync.error)
        assert same_images(sync, tmp_path / "captured-1")


@pytest.mark.parametrize("text", [r"\ud800", "no list"])
async def test_no_document_that_anybody_wrote_ends_a_worker(
    put: Publish, follow: Follow, store: ObjectStore, key: SigningKey, text: str
) -> None:
    made = put(1)
    sealed = json.dumps({"text": "TEXT", "signatures": {key.public: "AAAA"}}).replace("TEXT", text)
    async with follow() as sync:
        await until(lambda: served(sync) == made.generation)
        store.put(manifest_key("cpu", EVIL), sealed.encode())
        base = read_pointer(store, "cpu", ANY_ROOTFS)
        target = Target(EVIL, sha256(sealed.encode()).hexdigest())
        point(store, base, new_pointer(base, "cpu", ANY_ROOTFS, target))
        await until(lambda: f"generation {EVIL} is refused" in sync.error)
        roll_back(store, "cpu", ANY_ROOTFS)
        await until(lambda: not sync.error)
        assert served(sync) == made.generation


async def test_a_disk_that_went_away_does_not_end_a_worker(put: Publish, follow: Follow) -> None:
    made = put(1)
    async with follow(in_use=lambda: {made.generation}) as sync:
        await until(lambda: served(sync) == made.generation and not sync.error)
        place = sync.root.parent
        place.rename(place.with_name("gone"))
        await until(lambda: "No such file" in sync.error)
        place.with_name("gone").rename(place)
        await until(lambda: not sync.error)
        assert served(sync) == made.generation


class Hanging:
    """A store that answers nothing before it is let go."""

    url = "s3://hanging"

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def get(self, key: str) -> Any:
        self.asked.set()
        self.let_go.wait()
        raise ObjectStoreUnavailableError(key, "it does not answer")


async def test_a_bucket_that_hangs_holds_up_no_worker_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing, "END_GRACE_S", 0.01)
    hanging = Hanging()
    bucket = Bucket(cast(ObjectStore, hanging), Trust(unsigned=True))
    sync = BucketSync(Following(bucket, tmp_path / "disk"), MACHINE)
    running = asyncio.create_task(sync.run(set))
    assert await asyncio.to_thread(hanging.asked.wait, 60)
    running.cancel()
    await asyncio.wait({running}, timeout=60)
    assert running.cancelled()
    hanging.let_go.set()


async def test_news_let_a_generation_be_tried_again_at_once(
    put: Publish, store: ObjectStore, key: SigningKey, tmp_path: Path
) -> None:
    put(1)
    image = stock_of(tmp_path / "captured-1").listed.file(FIRST_PAGES).key
    right = store.get(image).data
    store.put(image, b"other bytes")
    following = Following(
        Bucket(store, Trust.of([key.public])), tmp_path / "disk", ANY_ROOTFS, poll=3_600.0
    )
    sync = BucketSync(following, MACHINE)
    told = asyncio.Semaphore(0)

    async def news(_: float) -> bool:
        return await told.acquire()

    running = asyncio.create_task(sync.run(set, news))
    await until(lambda: "does not expand" in sync.error)
    store.put(image, right)
    told.release()
    await until(lambda: not sync.error and served(sync) is not None)
    assert same_images(sync, tmp_path / "captured-1")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
