import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.publication import (
    Intent,
    Marks,
    PackingList,
    Pointer,
    PublicationError,
    PublishedFile,
    Sealed,
    Target,
    check_name,
    object_key,
    pointer_key,
)

SHA = "ab" * 32
FILES = (
    PublishedFile("manifest.json", 10, SHA),
    PublishedFile("catalogue.json", 20, SHA),
    PublishedFile("checkpoints/checkpoint_1/pages.img", 30, "cd" * 32),
)
LISTED = PackingList("cpu", "20260101T000000-01234567", "any", "fork", FILES)
TARGET = Target("20260101T000000-01234567", SHA)
POINTER = Pointer("cpu", "any", TARGET, "pub-1", "20260101T000000", previous=TARGET)


@pytest.mark.parametrize(
    "document",
    [
        LISTED,
        Sealed("text", {"ed25519:AA": "BB"}),
        Pointer("gpu", "any", TARGET, "pub-1", "20260101T000000"),
        Pointer("gpu", "0123", TARGET, "pub-1", "20260101T000000", previous=TARGET),
        Intent("pub-1", "20260101T000000-01234567", ("objects/x",)),
        Marks({"objects/x": 1.5}, ("objects/x",)),
    ],
)
def test_a_document_is_read_as_it_was_written(document: Any) -> None:
    assert type(document).load(document.dump()) == document
    assert type(document).load(document.dump()).dump() == document.dump()


def test_files_know_their_object_and_their_checkpoint() -> None:
    assert object_key(SHA) == f"objects/sha256/ab/{SHA}.zst"
    assert [file.checkpoint for file in LISTED.files] == [None, None, "checkpoint_1"]
    assert LISTED.keys == {object_key(SHA), object_key("cd" * 32)}
    assert LISTED.size == 60
    assert pointer_key("cpu", "any") == "flavors/cpu/any/current.json"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 99}, "has version 99"),
        ({"flavor": "tpu"}, "flavor is 'tpu'"),
        ({"generation": "../x"}, "packing list.generation"),
        ({"rootfs": "a/b"}, "packing list.rootfs"),
        ({"files": []}, "has no manifest.json"),
        ({"files": "many"}, "must be a list"),
        ({"files": [{"name": "manifest.json", "size": -1, "sha256": SHA}]}, "size must be"),
        ({"files": [{"name": "manifest.json", "size": 1, "sha256": "../../x"}]}, "64 hex digits"),
    ],
)
def test_a_packing_list_that_is_not_right_is_refused_with_the_place(
    change: dict[str, Any], reason: str
) -> None:
    data = json.dumps({**json.loads(LISTED.dump()), **change}).encode()
    with pytest.raises(PublicationError, match=reason):
        PackingList.load(data)


def test_names_that_are_one_on_some_systems_are_refused() -> None:
    files = (*FILES, PublishedFile("Manifest.json", 1, SHA))
    with pytest.raises(PublicationError, match="twice"):
        PackingList.load(PackingList("cpu", "g", "any", "fork", files).dump())


@given(st.text(alphabet="ab./\\\0 ~-_", max_size=30))
def test_no_name_leads_out_of_the_folder_it_is_joined_to(name: str) -> None:
    try:
        checked = check_name(name)
    except PublicationError:
        return
    parts = checked.split("/")
    assert len(parts) in (1, 3)
    assert all(part and not part.startswith(".") for part in parts)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 5_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    for kind in (PackingList, Sealed, Pointer, Intent, Marks):
        with pytest.raises(PublicationError):
            kind.load(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["target", "previous", "published", "files", "unused", "signatures", "text"]
)


@given(st.dictionaries(NAMES, JSON))
def test_whatever_a_document_holds_it_is_read_or_refused(changes: dict[str, Any]) -> None:
    for document in (LISTED, POINTER, Sealed("text"), Intent("p", "g", ()), Marks()):
        data = json.dumps({**json.loads(document.dump()), **changes}).encode()
        with suppress(PublicationError):
            type(document).load(data).dump()


@pytest.mark.parametrize("text", [r"\ud800", "x" * 100_000, r"\u001b[2J"])
def test_a_text_from_outside_neither_breaks_nor_fills_a_message(text: str) -> None:
    for key in ("flavor", "published", "version", "publication"):
        data = json.dumps({**json.loads(POINTER.dump()), key: "TEXT"}).replace("TEXT", text)
        with pytest.raises(PublicationError) as refused:
            Pointer.load(data.encode())
        assert len(str(refused.value).encode()) < 1_000
        assert str(refused.value).isprintable()


def test_a_number_beyond_all_measure_is_refused() -> None:
    with pytest.raises(PublicationError, match="must be a number"):
        Marks.load(b'{"version": 1, "unused": {"key": 1%s}}' % (b"0" * 400))
