"""Where catalogues are found, and what makes one be read again."""

from pathlib import Path

import pytest

from readie_gateway.catalogues import Catalogues
from readie_wire.catalogue import Catalogue, dump_catalogue
from support.generations import write_generation


def names(catalogues: Catalogues) -> list[str]:
    return [f"{one.path.parent.name}/{one.path.name}" for one in catalogues.loaded]


async def test_a_generation_is_read_with_its_manifest(tmp_path: Path) -> None:
    write_generation(tmp_path / "one", {"checkpoint_0": []})
    catalogues = Catalogues(generations=tmp_path / "one")
    assert await catalogues.refresh()
    (loaded,) = catalogues.loaded
    assert loaded.generation
    assert loaded.python
    assert loaded.flavor == "cpu"


async def test_a_folder_of_flavors_comes_before_the_catalogue_folder(tmp_path: Path) -> None:
    write_generation(tmp_path / "generations" / "cpu", {"checkpoint_0": []})
    folder = tmp_path / "catalogues"
    folder.mkdir()
    (folder / "b.json").write_bytes(dump_catalogue(Catalogue("gpu", 0.01, {}, ())))
    (folder / "a.json").write_bytes(dump_catalogue(Catalogue("cpu", 0.01, {}, ())))
    catalogues = Catalogues(generations=tmp_path / "generations", folder=folder)
    await catalogues.refresh()
    assert names(catalogues) == ["cpu/catalogue.json", "catalogues/a.json", "catalogues/b.json"]


async def test_a_catalogue_that_is_not_the_manifests_is_skipped(tmp_path: Path) -> None:
    write_generation(tmp_path, {"checkpoint_0": []})
    (tmp_path / "catalogue.json").write_bytes(dump_catalogue(Catalogue("cpu", 0.01, {}, ())))
    catalogues = Catalogues(generations=tmp_path)
    await catalogues.refresh()
    assert not catalogues.loaded
    (reason,) = catalogues.skipped.values()
    assert "sha256 differs" in reason


async def test_a_generation_seen_half_written_is_read_when_its_manifest_has_come(
    tmp_path: Path,
) -> None:
    write_generation(tmp_path, {"checkpoint_0": []})
    catalogues = Catalogues(generations=tmp_path)
    await catalogues.refresh()
    old_manifest = (tmp_path / "manifest.json").read_bytes()
    write_generation(tmp_path, {"checkpoint_0": [], "checkpoint_1": ["click"]})
    new_manifest = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_bytes(old_manifest)
    await catalogues.refresh()
    assert not catalogues.loaded
    (tmp_path / "manifest.json").write_bytes(new_manifest)
    await catalogues.refresh()
    (loaded,) = catalogues.loaded
    assert len(loaded.priced.catalogue.checkpoints) == 2


async def test_a_catalogue_that_was_replaced_is_kept_while_workers_hold_it(tmp_path: Path) -> None:
    write_generation(tmp_path, {"checkpoint_0": []})
    catalogues = Catalogues(generations=tmp_path)
    await catalogues.refresh()
    (old,) = catalogues.loaded
    write_generation(tmp_path, {"checkpoint_0": [], "checkpoint_1": ["click"]})
    await catalogues.refresh()
    new, kept = catalogues.loaded
    assert kept is old
    catalogues.held({old.sha256})
    assert list(catalogues.loaded) == [new, old]
    catalogues.held({new.sha256})
    assert list(catalogues.loaded) == [new]


async def test_only_a_file_that_changed_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = dump_catalogue(Catalogue("cpu", 0.01, {}, ()))
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes(data)
    catalogues = Catalogues(folder=tmp_path)
    assert await catalogues.refresh()
    assert not await catalogues.refresh()
    before = catalogues.loaded
    replacement = tmp_path / "b.new"
    replacement.write_bytes(data)
    replacement.replace(tmp_path / "b.json")
    assert await catalogues.refresh()
    kept, changed = catalogues.loaded
    assert kept is before[0]
    assert changed is not before[1]
    (tmp_path / "b.json").write_text("{")
    await catalogues.refresh()
    await catalogues.refresh()
    assert caplog.text.count("b.json is skipped") == 1
    (tmp_path / "b.json").unlink()
    assert await catalogues.refresh()
    assert (names(catalogues), catalogues.skipped) == ([f"{tmp_path.name}/a.json"], {})


async def test_folders_that_are_not_there_are_empty(tmp_path: Path) -> None:
    catalogues = Catalogues(generations=tmp_path / "no", folder=tmp_path / "nothing")
    assert not await catalogues.refresh()
    assert not catalogues.loaded
