"""The catalogue's schema, its bytes, and what a name needs."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.catalogue import (
    Catalogue,
    CatalogueCheckpoint,
    CatalogueError,
    Item,
    ResourceType,
    canonical_distribution,
    dump_catalogue,
    load_catalogue,
    numbers_in,
)

NUMPY = {"load_time": 0.2, "size_mb": 6.5, "resource_type": "package", "distribution": "numpy"}


def small() -> dict[str, Any]:
    return {
        "version": 2,
        "flavor": "cpu",
        "alpha": 0.0065,
        "distributions": {"numpy": "2.0.2"},
        "items": {"numpy": dict(NUMPY)},
        "checkpoints": [
            {"id": "checkpoint_0", "items": [], "canonical": [], "size_mb": 0},
            {"id": "checkpoint_1", "items": ["numpy"], "canonical": ["numpy"], "size_mb": 6.5},
        ],
    }


def load(value: Any) -> Catalogue:
    return load_catalogue(json.dumps(value).encode())


def graph_of(dependencies: dict[str, list[str]]) -> Catalogue:
    items = {
        name: Item(1.0, 1.0, ResourceType.PACKAGE, tuple(needs))
        for name, needs in dependencies.items()
    }
    return Catalogue("cpu", 0.001, items, ())


def test_a_catalogue_is_read_with_all_its_fields() -> None:
    catalogue = load(small())
    assert (catalogue.version, catalogue.flavor, catalogue.alpha) == (2, "cpu", 0.0065)
    assert catalogue.items["numpy"] == Item(0.2, 6.5, ResourceType.PACKAGE, (), "numpy")
    assert catalogue.distributions == {"numpy": "2.0.2"}
    assert catalogue.checkpoints[1] == CatalogueCheckpoint(
        "checkpoint_1", ("numpy",), ("numpy",), 6.5
    )


def test_a_written_catalogue_has_exactly_the_six_keys_and_one_item_a_line() -> None:
    written = dump_catalogue(load(small()))
    assert list(json.loads(written)) == [
        "version",
        "flavor",
        "alpha",
        "distributions",
        "items",
        "checkpoints",
    ]
    assert sum(b'"load_time"' in line for line in written.splitlines()) == 1


def test_unknown_keys_of_a_newer_pipeline_are_ignored() -> None:
    value = small()
    value["notes"] = "new"
    value["items"]["numpy"]["colour"] = "blue"
    assert load(value) == load(small())


def change(path: str, new: Any) -> Callable[[dict[str, Any]], None]:
    def apply(value: Any) -> None:
        *parents, last = path.split("/")
        for key in parents:
            value = value[int(key) if isinstance(value, list) else key]
        if new is ...:
            del value[last]
        else:
            value[last] = new

    return apply


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (change("version", 1), "version is 1; this build reads 2"),
        (change("version", "2"), "version is '2'"),
        (change("version", True), "version is True"),
        (change("flavor", "tpu"), "flavor is 'tpu'; choose one of cpu, gpu"),
        (change("flavor", ...), "flavor must be a string"),
        (change("alpha", 0), "alpha must be greater than 0"),
        (change("alpha", -1), "alpha must be a finite number"),
        (change("alpha", math.nan), "alpha must be a finite number"),
        (change("alpha", "0.1"), "alpha must be a finite number"),
        (change("distributions", []), "distributions must be an object"),
        (change("distributions/numpy", None), "distributions.numpy must be a string"),
        (change("items", []), "items must be an object"),
        (change("items/numpy", 3), "items.numpy must be an object"),
        (change("items/numpy/load_time", ...), "items.numpy.load_time must be a finite number"),
        (change("items/numpy/size_mb", math.inf), "items.numpy.size_mb must be a finite number"),
        (change("items/numpy/resource_type", "egg"), "items.numpy.resource_type is 'egg'"),
        (change("items/numpy/dependencies", [1]), "items.numpy.dependencies must be a list"),
        (change("checkpoints", {}), "checkpoints must be a list"),
        (change("checkpoints/1/id", "checkpoint_0"), "which an earlier entry has"),
        (change("checkpoints/1/id", "../../etc"), "checkpoints[1].id is '../../etc'"),
        (change("checkpoints/1/items", "numpy"), "checkpoints[1].items must be a list of names"),
        (change("checkpoints/1/size_mb", True), "checkpoints[1].size_mb must be a finite number"),
    ],
)
def test_a_bad_catalogue_is_refused_by_its_place(edit: Any, complaint: str) -> None:
    value = small()
    edit(value)
    with pytest.raises(CatalogueError, match=r".+") as caught:
        load(value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(CatalogueError):
        load_catalogue(data)


names = st.sampled_from(["a", "a.b", "a.b.c", "b", "b.x", "c", "c.d", "model:gpt2", "model:b.x"])
numbers = st.floats(0, 1e6, allow_nan=False)


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    items = draw(
        st.dictionaries(
            names,
            st.builds(
                Item,
                load_time=numbers,
                size_mb=numbers,
                resource_type=st.sampled_from(ResourceType),
                dependencies=st.lists(names, unique=True, max_size=4).map(sorted).map(tuple),
                distribution=st.sampled_from(["", "numpy", "scikit-learn"]),
            ),
        )
    )
    held = st.lists(st.sampled_from(sorted(items)), unique=True) if items else st.just([])
    checkpoints = tuple(
        CatalogueCheckpoint(f"checkpoint_{number}", tuple(draw(held)), (), draw(numbers))
        for number in range(draw(st.integers(0, 4)))
    )
    alpha = draw(st.floats(1e-6, 1.0))
    return Catalogue("cpu", alpha, items, checkpoints, {"numpy": "2.0.2"})


@given(catalogues())
def test_what_is_written_reads_back_equal_and_is_written_the_same(catalogue: Catalogue) -> None:
    written = dump_catalogue(catalogue)
    again = load_catalogue(written)
    assert again == catalogue
    assert dump_catalogue(again) == written


@given(catalogues(), st.lists(names))
def test_needs_are_closed_under_dependencies_and_dotted_parents(
    catalogue: Catalogue, asked: list[str]
) -> None:
    needed = set(catalogue.resolve(asked).items)
    for name in needed:
        item = catalogue.items[name]
        assert needed.issuperset(set(item.dependencies) & set(catalogue.items))
        if item.resource_type is ResourceType.PACKAGE and "." in name:
            parent = catalogue.graph.nearest(name.rpartition(".")[0])
            assert parent is None or parent in needed


@given(catalogues(), st.lists(names))
def test_the_closure_does_not_depend_on_what_was_asked_before(
    catalogue: Catalogue, asked: list[str]
) -> None:
    together = set(catalogue.resolve(asked).items)
    fresh = [set(Catalogue("cpu", 1, catalogue.items, ()).resolve([name]).items) for name in asked]
    assert together == set().union(*fresh)


def test_dependencies_in_a_circle_are_all_needed() -> None:
    catalogue = graph_of({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["b"], "e": []})
    for first in "dabc":
        assert set(catalogue.resolve([first]).items) >= {"a", "b", "c"}
    assert set(catalogue.resolve(["c"]).items) == {"a", "b", "c"}


def test_a_dotted_name_stands_for_its_nearest_known_parent() -> None:
    catalogue = graph_of({"google.cloud.storage": [], "numpy": [], "numpy.linalg": []})
    found = catalogue.resolve(["google.cloud.storage.blob", "numpy.linalg", "google.auth", "torch"])
    assert found.matched == {
        "google.cloud.storage.blob": "google.cloud.storage",
        "numpy.linalg": "numpy.linalg",
    }
    assert found.items == ("google.cloud.storage", "numpy", "numpy.linalg")
    assert found.unknown == ("google.auth", "torch")


def test_a_dependency_that_is_no_item_is_not_priced() -> None:
    assert graph_of({"a": ["gone"]}).resolve(["a"]).items == ("a",)


@given(st.sets(st.integers(0, 5_000)))
def test_bits_are_listed_in_order(members: set[int]) -> None:
    assert list(numbers_in(sum(1 << number for number in members))) == sorted(members)


def test_distribution_names_compare_as_indexes_compare_them() -> None:
    assert canonical_distribution("Scikit_Learn") == "scikit-learn"
    assert canonical_distribution("zope.interface") == "zope-interface"


@given(catalogues(), st.integers(1, 200))
def test_a_catalogue_may_come_in_chunks(catalogue: Catalogue, size: int) -> None:
    data = dump_catalogue(catalogue)
    assert load_catalogue(data[at : at + size] for at in range(0, len(data), size)) == catalogue


def test_a_model_stands_for_no_other_version_of_it() -> None:
    items = {"model:org/name-3": Item(1.0, 1.0, ResourceType.MODEL)}
    found = Catalogue("cpu", 1, items, ()).resolve(["model:org/name-3.1", "model:org/name-3"])
    assert found.unknown == ("model:org/name-3.1",)
    assert found.items == ("model:org/name-3",)
