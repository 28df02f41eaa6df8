"""One behaviour, two stores: a directory, and a bucket of a real S3 server."""

import threading
import time
from pathlib import Path

import pytest

from readie_infra.blobs import BucketBlobs
from readie_infra.errors import BlobKeyError, BlobMissingError, SettingsError
from readie_infra.objects import (
    ObjectConflictError,
    ObjectKeyError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
    S3Options,
    UnfitStoreError,
    open_objects,
    probe,
)
from readie_infra.objects.s3 import PART_BYTES, S3Objects
from support.calling import SURELY
from support.lying_store import Lie, lying_store
from support.s3_servers import S3Server

KEY = "flavors/cpu/any/current.json"
RACERS = 8


@pytest.fixture(params=["file", "s3"])
def bucket_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return (tmp_path / "bucket").as_uri()
    s3: S3Server = request.getfixturevalue("s3")
    return f"{s3.make_bucket()}/some/prefix"


@pytest.fixture
def store(bucket_url: str) -> ObjectStore:
    return open_objects(bucket_url)


def read(store: ObjectStore, key: str, offset: int = 0) -> bytes:
    with store.stream(key, offset) as chunks:
        return b"".join(chunks)


def test_what_was_put_is_read_whole_and_from_an_offset(store: ObjectStore) -> None:
    assert store.head(KEY) is None
    store.put(KEY, b"first")
    store.put(KEY, b"second")
    assert store.get(KEY).data == b"second"
    assert read(store, KEY) == b"second"
    assert read(store, KEY, 3) == b"ond"
    head = store.head(KEY)
    assert head is not None
    assert head.size == 6


def test_a_large_file_goes_up_in_parts_and_comes_back_the_same(
    store: ObjectStore, tmp_path: Path
) -> None:
    data = bytes(range(256)) * (PART_BYTES // 256) + b"beyond one part"
    (tmp_path / "large").write_bytes(data)
    store.put("objects/large", tmp_path / "large")
    assert read(store, "objects/large") == data


def test_a_missing_object_has_an_error_of_its_own(store: ObjectStore) -> None:
    store.put(KEY, b"x")
    for missing in ("flavors/cpu/any/other.json", "nothing"):
        with pytest.raises(ObjectMissingError, match=missing):
            store.get(missing)
        with pytest.raises(ObjectMissingError):
            read(store, missing)
        store.delete(missing)
    store.delete(KEY)
    assert store.head(KEY) is None


def test_an_unchanged_document_is_not_sent_again(store: ObjectStore) -> None:
    store.put(KEY, b"one")
    etag = store.get(KEY).etag
    assert store.get_changed(KEY, etag) is None
    store.put(KEY, b"two")
    changed = store.get_changed(KEY, etag)
    assert changed is not None
    assert changed.data == b"two"


def test_a_taken_key_is_not_put_again(store: ObjectStore) -> None:
    store.put_if_absent(KEY, b"one")
    with pytest.raises(ObjectConflictError):
        store.put_if_absent(KEY, b"two")
    assert store.get(KEY).data == b"one"


def test_a_version_is_replaced_only_while_it_is_the_present_one(store: ObjectStore) -> None:
    store.put_if_absent(KEY, b"one")
    etag = store.get(KEY).etag
    store.put_if_match(KEY, b"two", etag)
    with pytest.raises(ObjectConflictError):
        store.put_if_match(KEY, b"three", etag)
    assert store.get(KEY).data == b"two"
    store.delete(KEY)
    with pytest.raises(ObjectConflictError):
        store.put_if_match(KEY, b"four", etag)


@pytest.mark.parametrize("absent", [True, False])
def test_of_eight_conditional_puts_at_once_one_wins(store: ObjectStore, absent: bool) -> None:
    etag = ""
    if not absent:
        store.put(KEY, b"before")
        etag = store.get(KEY).etag
    together = threading.Barrier(RACERS, timeout=SURELY)
    won: list[bytes] = []

    def race(mine: bytes) -> None:
        together.wait()
        try:
            if absent:
                store.put_if_absent(KEY, mine)
            else:
                store.put_if_match(KEY, mine, etag)
        except ObjectConflictError:
            return
        won.append(mine)

    racers = [threading.Thread(target=race, args=(b"racer %d" % n,)) for n in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert won == [store.get(KEY).data]


def test_a_listing_has_what_is_below_its_prefix(store: ObjectStore) -> None:
    assert list(store.list("generations/")) == []
    for key in ("generations/cpu/a/manifest.json", "generations/gpu/b", "other/c"):
        store.put(key, b"xyz")
    found = {entry.key: entry.size for entry in store.list("generations/")}
    assert found == {"generations/cpu/a/manifest.json": 3, "generations/gpu/b": 3}
    assert len(list(store.list(""))) == 3


@pytest.mark.parametrize("key", ["../out", "a/../../out", "/abs", "a//b", "", "a\\b", "a/\0", ".x"])
def test_a_key_that_could_climb_is_refused(store: ObjectStore, key: str) -> None:
    calls = (
        lambda: store.put(key, b""),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: read(store, key),
        lambda: store.put_if_absent(key, b""),
        lambda: store.put_if_match(key, b"", "x"),
    )
    for call in calls:
        with pytest.raises(ObjectKeyError):
            call()


def test_a_store_that_honours_conditions_passes_the_probe_and_is_left_clean(
    store: ObjectStore,
) -> None:
    probe(store)
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("ignored", "named"), [("put_if_absent", "If-None-Match"), ("put_if_match", "If-Match")]
)
def test_a_store_that_ignores_a_condition_is_refused_by_name(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, ignored: str, named: str
) -> None:
    monkeypatch.setattr(store, ignored, lambda key, data, _etag="": store.put(key, data))
    with pytest.raises(UnfitStoreError, match=f"ignores {named}"):
        probe(store)


@pytest.mark.parametrize(
    "url", ["http://x/y", "s3://", "file://host/x", "s3://name/../up", "s3://name?x=1", "name"]
)
def test_a_bucket_that_cannot_be_is_refused_with_what_can(url: str) -> None:
    with pytest.raises(SettingsError, match="bucket"):
        open_objects(url)


def test_a_profile_that_does_not_exist_is_a_setting_to_correct() -> None:
    with pytest.raises(SettingsError, match="no-such-profile"):
        open_objects("s3://name", S3Options(profile="no-such-profile"))


def test_wrong_credentials_and_a_missing_bucket_are_errors_of_the_store(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ObjectStoreUnavailableError, match=r"NoSuchBucket.*s3://no-such-bucket.*make"
    ):
        open_objects("s3://no-such-bucket").get(KEY)
    url = s3.make_bucket()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ObjectStoreUnavailableError, match=r"SignatureDoesNotMatch.*AWS_SECRET"):
        open_objects(url).get(KEY)


def test_an_answer_without_its_headers_is_an_error_of_the_store(s3: S3Server) -> None:
    url, key = s3.make_bucket(), "objects/x"
    open_objects(url).put(key, b"data")
    with lying_store(s3.port) as proxy:
        store = open_objects(url, S3Options(endpoint_url=proxy.url))
        proxy.tell(Lie.NO_VERSION)
        with pytest.raises(ObjectStoreUnavailableError, match=r"cannot be read: KeyError.'ETag'"):
            store.get(key)


def test_a_folder_that_cannot_be_written_says_so() -> None:
    with pytest.raises(ObjectStoreUnavailableError, match="/proc/nothing"):
        open_objects("file:///proc/nothing").put(KEY, b"x")


def test_what_a_reader_does_with_a_stream_is_not_blamed_on_the_store(store: ObjectStore) -> None:
    store.put(KEY, b"data")
    with pytest.raises(OSError, match="disk is full"), store.stream(KEY):
        raise OSError("the disk is full")


def test_what_a_killed_writer_left_is_dropped_once_it_is_old(
    bucket_url: str, store: ObjectStore, tmp_path: Path
) -> None:
    leave_unfinished(bucket_url, store, tmp_path)
    assert list(store.list("")) == []
    assert store.drop_unfinished("objects/", time.time() - 3_600) == 0
    assert store.drop_unfinished("objects/", time.time() + 3_600) == 1
    assert store.drop_unfinished("objects/", time.time() + 3_600) == 0


def leave_unfinished(bucket_url: str, store: ObjectStore, tmp_path: Path) -> None:
    """As a publisher does that is killed while a large file goes up."""
    if isinstance(store, S3Objects):
        named = {"Bucket": bucket_url.split("/")[2], "Key": "some/prefix/objects/x"}
        begun = store._client.create_multipart_upload(**named)
        part = {"UploadId": begun["UploadId"], "PartNumber": 1, "Body": b"part"}
        store._client.upload_part(**named, **part)
    else:
        draft = tmp_path / "bucket" / ".partial" / "0123456789abcdef"
        draft.parent.mkdir(parents=True)
        draft.write_bytes(b"part")


async def test_blobs_live_in_a_bucket_as_well(store: ObjectStore) -> None:
    blobs = BucketBlobs(store)
    await blobs.put("blobs/call-1/payload", b"payload")
    await blobs.put("blobs/call-1/1/result", b"result")
    await blobs.put("blobs/call-2/payload", b"other")
    assert await blobs.get("blobs/call-1/1/result") == b"result"
    assert await blobs.exists("blobs/call-2/payload")

    async def known(owners: object) -> set[str]:
        return {"call-2"}

    assert await blobs.sweep(3_600, known) == []
    assert await blobs.sweep(-60, known) == ["call-1"]
    assert [found.key for found in store.list("")] == ["blobs/call-2/payload"]
    with pytest.raises(BlobMissingError):
        await blobs.get("blobs/call-1/payload")
    with pytest.raises(BlobKeyError):
        await blobs.get("../x")
