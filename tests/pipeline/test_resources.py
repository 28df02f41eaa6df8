"""Datasets, models and tokenizers: where they are found, what loads them, what that costs."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import joblib
import pytest
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.interpreter import Interpreter, network_off
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.loaders import call_for, sklearn_call
from readie_pipeline.measure.locating import Places, parted
from readie_pipeline.measure.metadata import Metadata, dump_metadata, load_metadata
from readie_pipeline.measure.probing import Call, ProbeRequest
from readie_pipeline.measure.resources import Resources, find_resources
from readie_pipeline.measure.surveying import survey
from readie_wire.catalogue import ResourceType
from support.made_up_packages import Environment
from support.probers import PatientProber

# What scikit-learn and pandas load besides: as items of their own they would only cost time here.
ASIDE = (
    "charset_normalizer",
    "cloudpickle",
    "dateutil",
    "narwhals",
    "rich",
    "six",
    "threadpoolctl",
)
NOWHERE = Path("/nowhere")
# Loads "models" that are programs: what loading one may do is up to a test.
MADE_UP_JOBLIB = """
import runpy

def load(path):
    return runpy.run_path(path)
"""


def measure(
    interpreter: Interpreter,
    given: Mapping[str, Path | None],
    hanging: Mapping[str, float] | None = None,
    excluded: Sequence[str] = (),
) -> tuple[Metadata, Resources]:
    inventory = Inventory.take(interpreter)
    found = find_resources(given, Places(NOWHERE, NOWHERE, NOWHERE, given), inventory)
    prober = PatientProber(interpreter, hanging or {})
    metadata = survey([], prober, inventory, repeats=1, excluded=excluded, calls=found.calls)
    return metadata, found


@pytest.mark.timeout(300)  # some twenty processes, of which half import scikit-learn or pandas
def test_real_ones_are_loaded_behind_the_packages_that_they_need(tmp_path: Path) -> None:
    model, tokenizer, dataset = (
        tmp_path / name for name in ("m.joblib", "tokenizer.json", "d.csv")
    )
    joblib.dump(LogisticRegression().fit([[0], [1], [2]], [0, 1, 1]), model)
    words = {f"word{number}": number for number in range(20_000)}
    Tokenizer(WordLevel(words, "word0")).save(str(tokenizer))
    dataset.write_text("a,b\n" + "1,2\n" * 500_000)
    given: dict[str, Path | None] = {
        "model:churn": model,
        "tokenizer:org/words": tokenizer,
        "dataset:sales": dataset,
    }
    interpreter = Interpreter(tmp_path, wrapper=network_off() or ())
    metadata, found = measure(interpreter, given, excluded=ASIDE)
    assert (found.failures, metadata.failures) == ({}, {})
    kinds = {name: metadata.items[name].resource_type for name in given}
    assert kinds == {name: parted(name)[0] for name in given}
    assert {metadata.items[name].distribution for name in given} == {""}
    assert {"joblib", "numpy", "sklearn"} <= set(metadata.items["model:churn"].dependencies)
    assert "tokenizers" in metadata.items["tokenizer:org/words"].dependencies
    assert "pandas" in metadata.items["dataset:sales"].dependencies
    # 500,000 rows of two whole numbers; the packages are items of their own.
    assert 7 < metadata.items["dataset:sales"].size_mb < 25
    assert all(metadata.items[name].load_time > 0 for name in given)
    assert metadata.items["dataset:sales"].disk_mb == pytest.approx(1.907, abs=0.01)
    assert metadata.items["joblib"].distribution == "joblib"
    assert load_metadata(dump_metadata(metadata)) == metadata


@pytest.fixture
def station(environment: Environment, interpreter: Callable[[], Interpreter]) -> Interpreter:
    environment.install("joblib", "1", {"joblib/__init__.py": MADE_UP_JOBLIB})
    environment.install("layers", "1", {"layers/__init__.py": "", "layers/deep.py": ""})
    return interpreter()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("import time; time.sleep(600)", "took longer than 2 s"),
        ("raise ValueError('an older format')", "ValueError: an older format"),
        ("import lost", "ModuleNotFoundError: No module named 'lost'"),
    ],
)
def test_one_that_cannot_be_loaded_does_not_stop_the_others(
    station: Interpreter, tmp_path: Path, program: str, reason: str
) -> None:
    bad, good = tmp_path / "bad.joblib", tmp_path / "good.joblib"
    bad.write_text(program)
    good.write_text("import layers.deep")
    hanging = {"model:bad": 2.0} if "sleep" in program else {}
    metadata, _ = measure(station, {"model:bad": bad, "model:good": good}, hanging)
    assert reason in metadata.failures["model:bad"]
    assert set(metadata.items) == {"joblib", "layers", "model:good"}
    assert metadata.items["model:good"].dependencies == ("joblib", "layers")


def test_what_has_no_loader_here_is_told_with_the_reason(
    station: Interpreter, tmp_path: Path
) -> None:
    folder, table = tmp_path / "gpt2", tmp_path / "sales.csv"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    table.write_text("a\n1\n")
    given: dict[str, Path | None] = {
        "model:gpt2": folder,
        "dataset:sales": table,
        "dataset:notes": tmp_path / "gone.csv",
        "model:odd": table,
    }
    _, found = measure(station, given)
    assert found.calls == {}
    assert found.failures == {
        "model:gpt2": "loading it needs transformers, which is not installed",
        "dataset:sales": "loading it needs pandas, which is not installed",
        "dataset:notes": f"{tmp_path}/gone.csv is not there",
        "model:odd": f"{table} holds no model of a kind that is known here",
    }


def test_what_is_in_the_caches_of_the_hubs_is_found(tmp_path: Path) -> None:
    hub, kaggle = tmp_path / "hub", tmp_path / "kaggle"
    current = hub / "models--org--name" / "snapshots" / "b2"
    for snapshot in ("a1", "b2", "c3"):
        current.with_name(snapshot).mkdir(parents=True)
    (hub / "models--org--name" / "refs").mkdir()
    (hub / "models--org--name" / "refs" / "main").write_text("b2")
    imdb = hub / "datasets--imdb" / "snapshots" / "d4"
    imdb.mkdir(parents=True)
    houses = kaggle / "datasets" / "owner" / "houses" / "versions" / "7"
    houses.mkdir(parents=True)
    places = Places(hub, kaggle, NOWHERE, {"model:mine": tmp_path, "dataset:imdb": None})
    assert places.find("model:org/name") == places.find("tokenizer:org/name") == current
    assert places.find("dataset:imdb") == imdb
    assert places.find("dataset:kaggle:owner/houses") == houses
    assert places.find("model:mine") == tmp_path
    for absent in ("model:imdb", "dataset:org/name", "dataset:kaggle:../../hub", "model:.."):
        assert places.find(absent) is None


def test_what_is_nowhere_is_neither_measured_nor_a_failure(station: Interpreter) -> None:
    inventory = Inventory.take(station)
    found = find_resources(["model:gpt2"], Places(NOWHERE, NOWHERE, NOWHERE), inventory)
    assert found == Resources({}, {}, frozenset({"model:gpt2"}))


@pytest.mark.parametrize(
    ("kind", "files", "installed", "expected"),
    [
        (ResourceType.MODEL, ["config.json"], ["transformers"], "AutoModel.from_pretrained ."),
        (ResourceType.MODEL, ["m.safetensors"], ["safetensors"], "load_file ./m.safetensors"),
        (ResourceType.MODEL, ["m.pkl"], [], "load ./m.pkl"),
        (
            ResourceType.TOKENIZER,
            ["tokenizer.json", "tokenizer_config.json"],
            ["transformers", "tokenizers"],
            "AutoTokenizer.from_pretrained .",
        ),
        (
            ResourceType.TOKENIZER,
            ["tokenizer.json", "tokenizer_config.json"],
            ["tokenizers"],
            "Tokenizer.from_file ./tokenizer.json",
        ),
        (ResourceType.DATASET, ["a.csv", "b.csv"], ["datasets", "pandas"], "load_dataset ."),
        (ResourceType.DATASET, ["a.parquet"], ["pandas"], "read_parquet ./a.parquet"),
    ],
)
def test_a_loader_is_chosen_by_the_files(
    tmp_path: Path,
    kind: ResourceType,
    files: Sequence[str],
    installed: Sequence[str],
    expected: str,
) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    call = call_for(kind, tmp_path, installed)
    assert f"{call.function} {call.path.replace(str(tmp_path), '.')}" == expected


def test_a_request_to_load_travels_to_workers_as_it_is() -> None:
    request = ProbeRequest(
        "model:a", ("joblib",), 2, Call("joblib", "load", "/a", {"mmap_mode": "r"})
    )
    assert ProbeRequest.from_json(json.loads(request.key())) == request


def test_of_several_files_one_has_to_be_named(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("")
    with pytest.raises(MeasureError, match=r"has 2 files \*\.csv: name one of them"):
        call_for(ResourceType.DATASET, tmp_path, ["pandas"])
    assert call_for(ResourceType.DATASET, tmp_path / "b.csv", ["pandas"]).function == "read_csv"


def test_datasets_of_scikit_learn_are_its_own_or_were_fetched(tmp_path: Path) -> None:
    iris = Call("sklearn.datasets", "load_iris")
    assert sklearn_call("sklearn:iris", NOWHERE, ["sklearn"]) == iris
    assert sklearn_call("sklearn:iris", NOWHERE, []) is None
    assert sklearn_call("sklearn:covtype", NOWHERE, ["sklearn"]) is None
    assert sklearn_call("iris", tmp_path, ["sklearn"]) is None
    fetched = sklearn_call("sklearn:covtype", tmp_path, ["sklearn"])
    assert fetched is not None
    assert fetched.function == "fetch_covtype"
    assert fetched.options == {"data_home": str(tmp_path), "download_if_missing": False}
