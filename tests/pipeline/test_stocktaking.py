"""Only a generation that is whole, and nothing else, is taken into stock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from readie_pipeline.errors import PublishError
from readie_pipeline.publish.stocktaking import take_stock
from support.generations import EMPTY
from support.published import IMAGE, quietly, stock_of, write_captured

CHECKPOINT = Path("checkpoints/checkpoint_1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_captured(tmp_path / "made", {EMPTY: [], "checkpoint_1": ["json"]})
    return tmp_path / "made"


def test_every_file_is_listed(folder: Path) -> None:
    stock = stock_of(folder)
    assert [file.name for file in stock.listed.files] == [
        "catalogue.json",
        *(
            f"checkpoints/{one}/{name}"
            for one in (EMPTY, "checkpoint_1")
            for name in ("meta.json", IMAGE)
        ),
        "manifest.json",
    ]
    assert stock.listed.size == sum(path.stat().st_size for path in stock.paths.values())


def test_a_capture_of_this_machine_is_published_only_on_demand(folder: Path) -> None:
    with pytest.raises(PublishError, match="--allow-host-rootfs"):
        take_stock(folder, quietly)


def cut_image(folder: Path) -> None:
    image = folder / CHECKPOINT / IMAGE
    image.write_bytes(image.read_bytes()[:-1])


def change_image(folder: Path) -> None:
    image = folder / CHECKPOINT / IMAGE
    image.write_bytes(b"!" + image.read_bytes()[1:])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut_image, f"{IMAGE} is missing or not what was captured"),
        (change_image, f"{IMAGE} is missing or not what was captured"),
        (lambda at: (at / CHECKPOINT / IMAGE).unlink(), f"{IMAGE} is missing"),
        (lambda at: (at / CHECKPOINT / "meta.json").unlink(), "meta.json"),
        (lambda at: (at / "manifest.json").unlink(), "is no generation"),
        (lambda at: (at / "catalogue.json").write_text("{}"), "not the catalogue"),
        (lambda at: (at / "evil").symlink_to("/etc/passwd"), "neither a file nor a folder"),
        (lambda at: (at / ".hidden").write_text(""), "not the name of a published file"),
        (
            lambda at: (at / "checkpoints" / "deep.img").write_text(""),
            "not the name of a published",
        ),
    ],
)
def test_a_folder_that_is_not_right_is_refused_with_the_place(
    folder: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(folder)
    with pytest.raises(PublishError, match=reason):
        stock_of(folder)


def test_a_checkpoint_that_the_manifest_does_not_list_is_refused(folder: Path) -> None:
    stray = folder / "checkpoints" / "checkpoint_9"
    stray.mkdir()
    (stray / IMAGE).write_bytes(b"x")
    with pytest.raises(PublishError, match="checkpoint_9, which it does not list"):
        stock_of(folder)
