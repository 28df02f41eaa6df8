"""Catalogues of a bucket: fetched by hash, only while a live worker holds them."""

from pathlib import Path

import pytest

from readie_gateway.catalogues import Catalogues
from readie_gateway.published import PublishedCatalogues
from readie_infra.objects import ObjectStore, open_objects
from readie_pipeline.publish.publishing import publish
from readie_wire.manifest import Manifest
from readie_wire.publication import object_key
from support.generations import write_generation
from support.published import quietly, stock_of


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_objects((tmp_path / "bucket").as_uri())


@pytest.fixture
def catalogues(store: ObjectStore) -> Catalogues:
    return Catalogues(published=PublishedCatalogues(store))


@pytest.fixture
def manifest(store: ObjectStore, tmp_path: Path) -> Manifest:
    made = write_generation(tmp_path / "made", {"checkpoint_0": [], "checkpoint_1": ["click"]})
    publish(store, stock_of(tmp_path / "made"), None, quietly)
    return made


async def test_what_a_worker_holds_is_fetched_and_dropped_with_it(
    catalogues: Catalogues, manifest: Manifest
) -> None:
    await catalogues.refresh()
    assert not catalogues.loaded
    catalogues.held({manifest.catalogue_sha256})
    await catalogues.refresh()
    (loaded,) = catalogues.loaded
    assert loaded.sha256 == manifest.catalogue_sha256
    assert loaded.flavor == "cpu"
    catalogues.held(())
    await catalogues.refresh()
    assert not catalogues.loaded


async def test_a_catalogue_of_other_bytes_is_never_used(
    catalogues: Catalogues, manifest: Manifest, store: ObjectStore, tmp_path: Path
) -> None:
    key = object_key(manifest.catalogue_sha256)
    other = tmp_path / "bucket" / object_key(stock_of(tmp_path / "made").listed.files[-1].sha256)
    store.put(key, other)
    catalogues.held({manifest.catalogue_sha256})
    await catalogues.refresh()
    assert not catalogues.loaded
    assert "another sha256" in catalogues.skipped[Path(key)]


async def test_a_catalogue_that_is_not_there_is_skipped_with_the_reason(
    catalogues: Catalogues,
) -> None:
    catalogues.held({"ab" * 32})
    await catalogues.refresh()
    assert not catalogues.loaded
    assert "there is none" in catalogues.skipped[Path(object_key("ab" * 32))]


async def test_what_a_folder_has_is_not_fetched(
    store: ObjectStore, manifest: Manifest, tmp_path: Path
) -> None:
    published = PublishedCatalogues(store)
    catalogues = Catalogues(generations=tmp_path / "made", published=published)
    await catalogues.refresh()
    catalogues.held({manifest.catalogue_sha256})
    await catalogues.refresh()
    assert len(catalogues.loaded) == 1
    assert not published.loaded
