"""Fewer dependencies, the same closures."""

from hypothesis import given
from hypothesis import strategies as st

from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, ResourceType
from readie_wire.pricing import PricedCatalogue
from readie_wire.slimming import slimmed

NAMES = [*(f"m{number}" for number in range(9)), "m0.part", "m0.part.deep", "model:m1"]
graphs = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from([*NAMES, "unheard_of"]), max_size=5) for name in NAMES}
)


def catalogue_of(graph: dict[str, list[str]]) -> Catalogue:
    items = {
        name: Item(
            *(0.1, 1.0),
            ResourceType.MODEL if ":" in name else ResourceType.PACKAGE,
            tuple(needs),
        )
        for name, needs in graph.items()
    }
    return Catalogue("cpu", 0.01, items, [CatalogueCheckpoint("checkpoint_1", ("m0",), ("m0",), 1)])


def closures(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    return {name: tuple(catalogue.resolve([name]).items) for name in catalogue.items}


@given(graphs)
def test_every_closure_stays_what_it_was(graph: dict[str, list[str]]) -> None:
    catalogue = catalogue_of(graph)
    slim = slimmed(catalogue)
    assert closures(slim) == closures(catalogue)
    assert list(slim.items) == list(catalogue.items)
    assert slim.checkpoints == catalogue.checkpoints
    prices = [PricedCatalogue(one).quote(["m3"]) for one in (slim, catalogue)]
    assert [quote.total_s for quote in prices[0]] == [quote.total_s for quote in prices[1]]


def test_a_chain_that_was_written_out_whole_becomes_a_chain() -> None:
    whole = {f"m{number}": [f"m{below}" for below in range(number)] for number in range(50)}
    slim = slimmed(catalogue_of(whole))
    assert [len(item.dependencies) for item in slim.items.values()] == [0] + [1] * 49


def test_a_circle_needs_one_dependency_each() -> None:
    names = [f"m{number}" for number in range(20)]
    slim = slimmed(catalogue_of({name: [*names, "below"] for name in names} | {"below": []}))
    needs = [len(slim.items[name].dependencies) for name in names]
    assert sorted(needs) == [1] * 19 + [2]
