"""The cost rule: worked numbers, ties, and agreement with the rule written down naively."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item
from readie_wire.manifest import StartupSeconds
from readie_wire.pricing import PricedCatalogue, predict

ITEMS = {
    "numpy": Item(load_time=0.15, size_mb=60),
    "pandas": Item(load_time=0.90, size_mb=80, dependencies=("numpy",)),
    "torch": Item(load_time=4.0, size_mb=400, dependencies=("numpy",)),
}


def checkpoint(name: str, *items: str) -> CatalogueCheckpoint:
    size = sum(ITEMS[item].size_mb for item in items)
    return CatalogueCheckpoint(name, items, items, size)


def priced(*checkpoints: CatalogueCheckpoint, alpha: float = 0.005) -> PricedCatalogue:
    return PricedCatalogue(Catalogue("cpu", alpha, ITEMS, checkpoints))


WORKED = priced(
    checkpoint("numpy", "numpy"),
    checkpoint("pandas", "numpy", "pandas"),
    checkpoint("torch", "numpy", "torch"),
)


@pytest.mark.parametrize(
    ("need", "totals"),
    [
        ("numpy", [0.15, 0.3, 0.7, 2.3]),
        ("pandas", [1.05, 1.2, 0.7, 3.2]),
        ("torch", [4.15, 4.3, 4.7, 2.3]),
    ],
)
def test_the_worked_example_costs_what_it_says(need: str, totals: list[float]) -> None:
    assert [quote.total_s for quote in WORKED.quote([need])] == totals


def test_a_quote_tells_its_terms() -> None:
    quote = WORKED.quote(["torch"])[2]
    assert quote.checkpoint == "pandas"
    assert (quote.size_cost_s, quote.missing_s, quote.missing) == (0.7, 4.0, ("torch",))


def test_the_cheapest_start_is_chosen() -> None:
    assert WORKED.choose(["numpy"]).checkpoint is None
    assert WORKED.choose(["pandas"]).checkpoint == "pandas"
    assert WORKED.choose(["torch"]).checkpoint == "torch"


def test_an_empty_checkpoint_beats_a_cold_start_of_the_same_cost() -> None:
    catalogue = priced(checkpoint("checkpoint_0"), checkpoint("checkpoint_1", "numpy", "torch"))
    assert catalogue.choose([]).checkpoint == "checkpoint_0"
    assert catalogue.choose(["numpy"]).checkpoint == "checkpoint_0"


def test_of_two_checkpoints_of_the_same_cost_the_later_entry_wins() -> None:
    twins = priced(
        checkpoint("checkpoint_1", "numpy", "pandas"), checkpoint("b", "pandas", "numpy")
    )
    assert twins.choose(["pandas"]).checkpoint == "b"


def test_a_tie_between_size_and_missing_time_is_exact() -> None:
    # 0.1 + 0.2 and 0.3 differ as floats.
    items = {"a": Item(0.1, 0), "b": Item(0.2, 0), "c": Item(0.3, 0)}
    checkpoints = (
        CatalogueCheckpoint("has_c", ("c",), (), 0),
        CatalogueCheckpoint("has_a_and_b", ("a", "b"), (), 0),
    )
    both = PricedCatalogue(Catalogue("cpu", 0.1, items, checkpoints))
    assert both.choose(["a", "b", "c"]).checkpoint == "has_a_and_b"


def test_unknown_names_are_not_priced() -> None:
    assert [quote.total_s for quote in WORKED.quote(["left_pad", "pandas"])] == [
        quote.total_s for quote in WORKED.quote(["pandas"])
    ]


def test_a_checkpoint_that_is_not_eligible_is_passed_over() -> None:
    def only_torch(checkpoint_id: str) -> str | None:
        return None if checkpoint_id == "torch" else "not today"

    assert WORKED.choose(["pandas"], only_torch).checkpoint is None
    assert WORKED.choose(["torch"], only_torch).checkpoint == "torch"


def test_without_checkpoints_every_start_is_cold() -> None:
    quotes = priced().quote(["pandas"])
    assert [quote.checkpoint for quote in quotes] == [None]
    assert quotes[0].missing == ("numpy", "pandas")


@pytest.mark.parametrize(
    ("runtime", "cold", "pandas"),
    [("gvisor", [0.4, 0.0, 8.3], [0.25, 0.7, 8.0]), ("fork", [0.4, 0.0, 8.3], [0.25, 0.014, 8.0])],
)
def test_a_prediction_is_what_any_start_costs_and_the_size_and_imports_there(
    runtime: str, cold: list[float], pandas: list[float]
) -> None:
    startup = StartupSeconds(cold=0.4, restore=0.25, import_factor=2.0, per_mb=0.0001)
    quotes = WORKED.quote(["torch"])
    predictions = [predict(quotes[index], startup, runtime) for index in (0, 2)]
    for prediction, expected in zip(predictions, (cold, pandas), strict=True):
        terms = [prediction.fixed_s, prediction.size_s, prediction.imports_s]
        assert terms == pytest.approx(expected)
        assert prediction.start_s == pytest.approx(sum(expected))


names = [f"m{number}" for number in range(12)]
times = st.integers(0, 5_000).map(lambda milliseconds: milliseconds / 1000)


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    items = {
        name: Item(
            load_time=draw(times),
            size_mb=draw(st.integers(0, 500)),
            dependencies=tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True))),
        )
        for name in names
    }
    checkpoints = tuple(
        CatalogueCheckpoint(f"checkpoint_{number}", held, held, sum(items[n].size_mb for n in held))
        for number in range(draw(st.integers(0, 6)))
        for held in [tuple(draw(st.lists(st.sampled_from(names), unique=True)))]
    )
    return Catalogue("cpu", draw(st.integers(1, 20)) / 1000, items, checkpoints)


def naive_costs(catalogue: Catalogue, needs: Sequence[str]) -> list[float]:
    needed: set[str] = set()
    pending = list(needs)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(catalogue.items[name].dependencies)
    options = [(0.0, frozenset[str]())]
    options += [(one.size_mb, frozenset(one.items)) for one in catalogue.checkpoints]
    return [
        catalogue.alpha * size + math.fsum(catalogue.items[n].load_time for n in needed - held)
        for size, held in options
    ]


@given(catalogues(), st.lists(st.sampled_from(names), max_size=5))
def test_quotes_agree_with_the_rule_written_down_naively(
    catalogue: Catalogue, needs: list[str]
) -> None:
    quotes = PricedCatalogue(catalogue).quote(needs)
    assert [quote.total_s for quote in quotes] == pytest.approx(naive_costs(catalogue, needs))
    for quote in quotes:
        missing = math.fsum(catalogue.items[name].load_time for name in quote.missing)
        assert quote.missing_s == pytest.approx(missing)


@given(catalogues(), st.lists(st.sampled_from(names), max_size=5))
def test_no_call_is_priced_above_its_cold_start(catalogue: Catalogue, needs: list[str]) -> None:
    catalogue_ = PricedCatalogue(catalogue)
    chosen = catalogue_.choose(needs)
    assert all(chosen.total_s <= quote.total_s for quote in catalogue_.quote(needs))


@given(catalogues(), st.lists(st.sampled_from(names), max_size=5))
def test_pricing_the_closure_gives_the_same_quotes(catalogue: Catalogue, needs: list[str]) -> None:
    priced_ = PricedCatalogue(catalogue)
    closure = catalogue.resolve(needs).items
    assert [q.total_s for q in priced_.quote(closure)] == [q.total_s for q in priced_.quote(needs)]
