"""Blobs in a folder: whole or not at all, and never outside it."""

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_infra.blobs import DirectoryBlobs, open_blobs, payload_key, result_key
from readie_infra.errors import (
    BlobKeyError,
    BlobMissingError,
    BlobUnavailableError,
    SettingsError,
)

KEY = payload_key("call-1")
HOUR = 3_600


def age(path: Path, seconds: float) -> None:
    """Make a file or folder that much older, as its modification time says."""
    modified = path.stat().st_mtime - seconds
    os.utime(path, (modified, modified))


async def known_are(*calls: str) -> Collection[str]:
    return set(calls)


@pytest.mark.parametrize("durable", [False, True])
async def test_what_was_put_can_be_got(tmp_path: Path, durable: bool) -> None:
    blobs = DirectoryBlobs(tmp_path / "not yet there", durable=durable)
    assert not await blobs.exists(KEY)
    await blobs.put(KEY, b"first")
    await blobs.put(KEY, b"second")
    await blobs.put(result_key("call-1", 2), b"")
    assert await blobs.get(KEY) == b"second"
    assert await blobs.get("blobs/call-1/2/result") == b""
    assert await blobs.exists(KEY)


async def test_a_file_is_copied_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    blobs = DirectoryBlobs(tmp_path / "blobs")
    await blobs.put(KEY, source)
    source.unlink()
    assert await blobs.get(KEY) == b"x" * 3_000_000


async def test_a_missing_blob_has_an_error_of_its_own(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    with pytest.raises(BlobMissingError, match=KEY):
        await blobs.get(KEY)
    await blobs.delete(KEY)
    await blobs.put(KEY, b"x")
    await blobs.delete(KEY)
    assert not await blobs.exists(KEY)


@pytest.mark.parametrize(
    "key",
    [
        "../outside",
        "blobs/../../outside",
        "/etc/passwd",
        "blobs//payload",
        "",
        "blobs/.partial/x",
        ".partial/x",
        "blobs/a\\b",
        "blobs/\x00",
        "blobs/é",
    ],
)
async def test_a_key_that_could_climb_is_refused(tmp_path: Path, key: str) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    with pytest.raises(BlobKeyError):
        await blobs.put(key, b"x")
    with pytest.raises(BlobKeyError):
        await blobs.get(key)
    with pytest.raises(BlobKeyError):
        await blobs.delete(key)
    with pytest.raises(BlobKeyError):
        await blobs.exists(key)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a listing in a coroutine of a test


@given(key=st.text(alphabet=st.sampled_from("ab./\\~\0 %"), max_size=12))
def test_no_key_at_all_reaches_outside_the_folder(
    tmp_path_factory: pytest.TempPathFactory, key: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    blobs = DirectoryBlobs(outside / "blobs")
    try:
        asyncio.run(blobs.put(key, b"x"))
    except BlobKeyError:
        assert list(outside.iterdir()) == []
    else:
        assert [path.name for path in outside.iterdir()] == ["blobs"]


async def test_many_writers_of_one_key_leave_one_whole_blob(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    bodies = [bytes([number]) * 200_000 for number in range(20)]
    await asyncio.gather(*(blobs.put(KEY, body) for body in bodies))
    assert await blobs.get(KEY) in bodies
    assert list((tmp_path / ".partial").iterdir()) == []


async def test_a_put_that_fails_leaves_the_old_blob_and_no_rest(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    await blobs.put(KEY, b"old")
    with pytest.raises(BlobMissingError):
        await blobs.put(KEY, tmp_path / "no such file")
    assert await blobs.get(KEY) == b"old"
    assert list((tmp_path / ".partial").iterdir()) == []


async def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    blobs = DirectoryBlobs(tmp_path / "file")
    with pytest.raises(BlobUnavailableError) as refusal:
        await blobs.put(KEY, b"x")
    assert refusal.value.__cause__ is not None


async def test_a_sweep_removes_old_blobs_of_forgotten_calls_only(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    for call in ("call-1", "call-2", "call-3"):
        await blobs.put(payload_key(call), b"x")
        await blobs.put(result_key(call, 1), b"x")
    for call in ("call-1", "call-2"):
        age(tmp_path / "blobs" / call, 2 * HOUR)

    async def known(calls: Sequence[str]) -> Collection[str]:
        assert calls == ["call-1", "call-2"]
        return {"call-2"}

    assert await blobs.sweep(HOUR, known) == ["call-1"]
    left = sorted(path.name for path in (tmp_path / "blobs").iterdir())
    assert left == ["call-2", "call-3"]


async def test_a_sweep_removes_what_dead_writers_left(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    await blobs.put(KEY, b"x")
    rest, fresh = tmp_path / ".partial" / "rest", tmp_path / ".partial" / "fresh"
    rest.write_bytes(b"half")
    fresh.write_bytes(b"half")
    age(rest, 2 * HOUR)
    await blobs.sweep(HOUR, lambda calls: known_are("call-1"))
    assert not rest.exists()
    assert fresh.exists()


async def test_a_sweep_of_nothing_is_no_error(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "nothing")
    assert await blobs.sweep(HOUR, lambda calls: known_are()) == []


async def test_a_url_opens_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    blobs = open_blobs(folder.as_uri())
    await blobs.put(KEY, b"x")
    assert (folder / "blobs" / "call-1" / "payload").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["s3://", "/plain/path", "file://other-host/x", "file:", ""])
def test_a_url_of_another_kind_is_refused_in_words(url: str) -> None:
    with pytest.raises(SettingsError, match="file:///"):
        open_blobs(url)
