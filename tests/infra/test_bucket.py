"""Nothing that is not proven leaves a bucket, whatever the store does."""

import json
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from readie_infra.bucket import (
    Bucket,
    CorruptObjectError,
    NotPublishedError,
    SigningKey,
    Trust,
    UntrustedError,
    compress,
    fetch,
)
from readie_infra.errors import SettingsError
from readie_infra.objects import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
    S3Options,
    open_objects,
)
from readie_wire.publication import (
    ANY_ROOTFS,
    PackingList,
    Pointer,
    PublishedFile,
    Sealed,
    Target,
    manifest_key,
    new_publication_id,
)
from support.lying_store import Lie, LyingStore, lying_store
from support.s3_servers import S3Server

GENERATION = "20260101T000000-01234567"
DATA = secrets.token_bytes(400_000) + bytes(3_000_000) + secrets.token_bytes(100_000)


def published(name: str, data: bytes) -> PublishedFile:
    return PublishedFile(name, len(data), sha256(data).hexdigest())


FILE = published("checkpoints/checkpoint_1/pages.img", DATA)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "key.pem")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_objects((tmp_path / "bucket").as_uri())


def packing_list(*names: str, generation: str = GENERATION, rootfs: str = ANY_ROOTFS) -> str:
    files = [published(name, b"x") for name in ("manifest.json", "catalogue.json", *names)]
    return PackingList("cpu", generation, rootfs, "fork", files).dump().decode()


def put(store: ObjectStore, sealed: Sealed) -> Target:
    store.put(manifest_key("cpu", GENERATION), sealed.dump())
    return Target(GENERATION, sha256(sealed.dump()).hexdigest())


def put_object(store: ObjectStore, folder: Path, file: PublishedFile, data: bytes) -> None:
    (folder / "raw").write_bytes(data)
    compress(folder / "raw", folder / "packed", file)
    store.put(file.key, folder / "packed")


def test_a_list_signed_by_a_pinned_key_is_believed(store: ObjectStore, key: SigningKey) -> None:
    target = put(store, key.seal(packing_list("checkpoints/checkpoint_1/meta.json")))
    bucket = Bucket(store, Trust.of([key.public]))
    assert bucket.packing_list("cpu", ANY_ROOTFS, target).generation == GENERATION


def test_a_list_of_strangers_altered_or_unsigned_is_refused(
    store: ObjectStore, key: SigningKey, tmp_path: Path
) -> None:
    stranger = SigningKey.create(tmp_path / "stranger.pem")
    bucket = Bucket(store, Trust.of([key.public]))
    text = packing_list()
    sealed = key.seal(text)
    for refused in (
        stranger.seal(text),
        Sealed(text),
        Sealed(text.replace("manifest.json", "manifest.jsom"), sealed.signatures),
        Sealed(text, {key.public: "not base64"}),
        Sealed(text, {key.public: "n\N{LATIN SMALL LETTER O WITH DIAERESIS}"}),
        Sealed(text, {key.public: "AAAA"}),
        Sealed(text, {"x" * 100_000: ""}),
        Sealed(text, {key.public: stranger.seal(text).signatures[stranger.public]}),
    ):
        target = put(store, refused)
        with pytest.raises(UntrustedError, match=GENERATION) as told:
            bucket.packing_list("cpu", ANY_ROOTFS, target)
        assert len(str(told.value)) < 1_000
    target = put(store, Sealed(text))
    believing = Bucket(store, Trust(unsigned=True))
    assert believing.packing_list("cpu", ANY_ROOTFS, target).generation == GENERATION


def test_a_signed_list_does_not_pass_for_another_one(store: ObjectStore, key: SigningKey) -> None:
    bucket = Bucket(store, Trust.of([key.public]))
    other = put(store, key.seal(packing_list(generation="20260101T000000-76543210")))
    with pytest.raises(UntrustedError, match="its manifest is that of 20260101T000000-76543210"):
        bucket.packing_list("cpu", ANY_ROOTFS, other)
    elsewhere = put(store, key.seal(packing_list(rootfs="abc")))
    with pytest.raises(UntrustedError, match="is for the root filesystem abc"):
        bucket.packing_list("cpu", ANY_ROOTFS, elsewhere)
    with pytest.raises(UntrustedError, match="not the one that was pointed to"):
        bucket.packing_list("cpu", "abc", Target(GENERATION, "0" * 64))
    with pytest.raises(NotPublishedError):
        bucket.packing_list("gpu", "abc", elsewhere)


@pytest.mark.parametrize(
    "name",
    [
        "../../evil",
        "checkpoints/../evil",
        "checkpoints/..",
        "/abs",
        "checkpoints/a\\..\\b/x",
        "checkpoints/x\x00y/z",
        "checkpoints/c1/sub/x",
        "other/c1/x",
        ".hidden",
        "",
    ],
)
def test_one_name_that_climbs_refuses_the_whole_generation(
    store: ObjectStore, key: SigningKey, name: str
) -> None:
    target = put(store, key.seal(packing_list("checkpoints/checkpoint_1/meta.json", name)))
    with pytest.raises(UntrustedError, match="not the name of a published file"):
        Bucket(store, Trust.of([key.public])).packing_list("cpu", ANY_ROOTFS, target)


def test_a_pointer_is_read_anew_only_when_it_has_changed(store: ObjectStore) -> None:
    bucket = Bucket(store, Trust(unsigned=True))
    with pytest.raises(NotPublishedError):
        bucket.current("cpu", ANY_ROOTFS)
    target = Target(GENERATION, "0" * 64)
    pointer = Pointer("cpu", ANY_ROOTFS, target, new_publication_id(), "20260101T000000")
    store.put(pointer.key, pointer.dump())
    found = bucket.current("cpu", ANY_ROOTFS)
    assert found.pointer == pointer
    assert bucket.changed("cpu", ANY_ROOTFS, found.etag) is None
    store.put(pointer.key, b"{}")
    with pytest.raises(UntrustedError, match="pointer"):
        bucket.changed("cpu", ANY_ROOTFS, found.etag)
    moved = {**json.loads(pointer.dump()), "flavor": "gpu"}
    store.put(pointer.key, json.dumps(moved).encode())
    with pytest.raises(UntrustedError, match="is one of gpu/any"):
        bucket.current("cpu", ANY_ROOTFS)


def test_keys_are_kept_and_refused_in_words(tmp_path: Path) -> None:
    key = SigningKey.create(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert SigningKey.read(tmp_path / "key.pem").public == key.public
    with pytest.raises(SettingsError, match="File exists"):
        SigningKey.create(tmp_path / "key.pem")
    (tmp_path / "other").write_text("no key")
    with pytest.raises(SettingsError, match="cannot be read"):
        SigningKey.read(tmp_path / "other")
    for wrong in ("ed25519:short", "rsa:AAAA", "ed25519:!"):
        with pytest.raises(SettingsError, match="is not a public key"):
            Trust.of([wrong])
    with pytest.raises(SettingsError, match="needs the public keys"):
        Trust.of([" "])


def test_a_file_comes_back_as_it_was(store: ObjectStore, tmp_path: Path) -> None:
    put_object(store, tmp_path, FILE, DATA)
    fetch(store, FILE, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA
    with pytest.raises(ObjectMissingError):
        fetch(store, published("other", b"y"), tmp_path / "other")


@pytest.mark.parametrize(
    "wrong",
    [
        PublishedFile("longer", FILE.size + 1, FILE.sha256),
        PublishedFile("shorter", FILE.size - 1, FILE.sha256),
    ],
)
def test_a_file_of_another_length_is_refused(
    store: ObjectStore, tmp_path: Path, wrong: PublishedFile
) -> None:
    put_object(store, tmp_path, FILE, DATA)
    with pytest.raises(CorruptObjectError, match=wrong.name):
        fetch(store, wrong, tmp_path / "fetched")


@pytest.mark.parametrize("stored", [b"", b"not compressed", bytes(100)])
def test_an_object_of_other_bytes_is_refused(
    store: ObjectStore, tmp_path: Path, stored: bytes
) -> None:
    store.put(FILE.key, stored)
    with pytest.raises(CorruptObjectError):
        fetch(store, FILE, tmp_path / "fetched")
    assert not list(tmp_path.glob("*fetched*"))


def test_a_file_that_changes_while_it_is_published_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(DATA[:-1] + b"!")
    with pytest.raises(CorruptObjectError, match="has changed"):
        compress(tmp_path / "raw", tmp_path / "packed", FILE)


@pytest.fixture
def liar(s3: S3Server) -> Iterator[LyingStore]:
    with lying_store(s3.port) as store:
        yield store


@pytest.fixture
def lied_to(liar: LyingStore, s3: S3Server, tmp_path: Path) -> ObjectStore:
    """A bucket of a real server that holds the file, through a proxy that can lie."""
    store = open_objects(s3.make_bucket(), S3Options(endpoint_url=liar.url))
    put_object(store, tmp_path, FILE, DATA)
    return store


@pytest.mark.parametrize("lie", [Lie.BREAKS, Lie.CUT_SHORT, Lie.FAILS])
def test_a_download_that_is_interrupted_goes_on_where_it_was(
    lied_to: ObjectStore, liar: LyingStore, tmp_path: Path, lie: Lie
) -> None:
    liar.tell(lie, lie, None)
    fetch(lied_to, FILE, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert liar.told == 2


@pytest.mark.parametrize("lie", [Lie.BREAKS, Lie.CUT_SHORT, Lie.FAILS, Lie.ZERO_FILLED])
def test_bytes_that_never_arrive_right_leave_nothing_behind(
    lied_to: ObjectStore, liar: LyingStore, tmp_path: Path, lie: Lie
) -> None:
    liar.tell(lie)
    with pytest.raises((CorruptObjectError, ObjectStoreUnavailableError)):
        fetch(lied_to, FILE, tmp_path / "fetched")
    assert liar.told
    assert not list(tmp_path.glob("*fetched*"))
    liar.tell(None)
    fetch(lied_to, FILE, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA


def test_a_checksum_of_the_whole_object_on_a_part_of_it_disturbs_nothing(
    lied_to: ObjectStore, liar: LyingStore, tmp_path: Path
) -> None:
    liar.tell(Lie.BREAKS, Lie.ODD_CHECKSUM)
    fetch(lied_to, FILE, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert liar.told == 2
