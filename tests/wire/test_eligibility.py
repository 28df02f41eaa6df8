"""Each reason for which a checkpoint may not serve a call."""

import pytest

from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item
from readie_wire.eligibility import MIB, CallFacts, CheckpointFacts, checkpoint_facts, eligible

LOADED = CheckpointFacts(
    id="checkpoint_1",
    generation="20260101T000000-0123abcd",
    distributions={"numpy": "1.26.4", "scikit-learn": "1.7.0", "odd": ""},
    modules=frozenset({"numpy", "sklearn"}),
    import_environment=frozenset({"OMP_NUM_THREADS", "MPLBACKEND"}),
    size_mb=100,
)


def is_one(version: str) -> bool:
    return version.startswith("1.")


def is_two(version: str) -> bool:
    return version.startswith("2.")


@pytest.mark.parametrize(
    "call",
    [
        CallFacts(),
        CallFacts(pin="checkpoint_1"),
        CallFacts(pin="20260101T000000-0123abcd/checkpoint_1"),
        CallFacts(packages={"numpy": is_one, "torch": is_two}),
        CallFacts(environment=frozenset({"COLOUR"})),
        CallFacts(memory=132 * MIB),
        CallFacts(own_modules=frozenset({"mylib"})),
    ],
)
def test_a_call_that_nothing_speaks_against_may_be_served(call: CallFacts) -> None:
    assert eligible(call, LOADED) is None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (CallFacts(pin="checkpoint_2"), "the call is pinned to checkpoint_2"),
        (CallFacts(pin="other/checkpoint_1"), "the call is pinned to other/checkpoint_1"),
        (CallFacts(packages={"numpy": is_two}), "numpy 1.26.4 is loaded"),
        (CallFacts(packages={"Scikit_Learn": is_two}), "Scikit_Learn 1.7.0 is loaded"),
        (CallFacts(packages={"odd": is_one}), "odd of an unknown version is loaded"),
        (CallFacts(environment=frozenset({"MPLBACKEND"})), "the call sets MPLBACKEND"),
        (CallFacts(memory=131 * MIB), "it needs 132 MiB, the call's memory is 131 MiB"),
        (CallFacts(own_modules=frozenset({"numpy"})), "brings its own numpy"),
    ],
)
def test_a_conflict_is_told_in_words(call: CallFacts, reason: str) -> None:
    assert reason in (eligible(call, LOADED) or "")


def test_an_empty_checkpoint_serves_whatever_is_asked() -> None:
    call = CallFacts(
        packages={"numpy": is_two},
        environment=frozenset({"OMP_NUM_THREADS"}),
        own_modules=frozenset({"numpy"}),
        memory=32 * MIB,
    )
    assert eligible(call, CheckpointFacts("checkpoint_0")) is None


def test_facts_come_from_the_catalogue_and_the_manifest() -> None:
    catalogue = Catalogue(
        flavor="cpu",
        alpha=0.002,
        items={
            "sklearn.linear_model": Item(1.0, 40.0, distribution="scikit_learn"),
            "model:gpt2": Item(3.0, 500.0),
        },
        checkpoints=(
            CatalogueCheckpoint("checkpoint_0"),
            CatalogueCheckpoint("checkpoint_1", ("model:gpt2", "sklearn.linear_model"), (), 540.0),
        ),
        distributions={"scikit-learn": "1.7.0"},
    )
    empty, full = checkpoint_facts(catalogue, "g", {"checkpoint_1": ["OMP_NUM_THREADS"]})
    assert empty == CheckpointFacts("checkpoint_0", "g")
    assert full == CheckpointFacts(
        id="checkpoint_1",
        generation="g",
        distributions={"scikit-learn": "1.7.0"},
        modules=frozenset({"sklearn"}),
        import_environment=frozenset({"OMP_NUM_THREADS"}),
        size_mb=540.0,
    )
