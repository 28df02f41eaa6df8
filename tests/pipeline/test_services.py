"""The services of the corpus through their real client libraries, against made-up ones on loopback."""

import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from readie_pipeline.corpus.checking import Owner
from readie_pipeline.corpus.hosted_model import Endpoint, HostedModel, programs_in
from readie_pipeline.corpus.hugging_face import HuggingFace
from readie_pipeline.corpus.kaggle import Kaggle, Login
from readie_pipeline.corpus.opening import Deferred, MissingExtraError, open_kaggle
from readie_pipeline.corpus.package_index import IndexSettings, PackageIndex
from readie_pipeline.corpus.patience import Patience
from readie_pipeline.corpus.recorded import fetch_recorded
from readie_pipeline.corpus.sources import Found, gather
from readie_pipeline.errors import CorpusError, ServiceError
from readie_pipeline.journal import Journal
from support.fake_services import (
    GATEWAY_TOKEN,
    HUB_TOKEN,
    KAGGLE_LOGIN,
    MODEL_KEY,
    SECRETS,
    FakeServices,
    Trouble,
    fake_services,
)

PATIENCE = Patience(deadline_s=10, retries=2, pause_s=0.01, longest_pause_s=5)
HASTE = Patience(deadline_s=0.2, retries=1, pause_s=0.01)


@pytest.fixture
def fake() -> Iterator[FakeServices]:
    with fake_services() as services:
        yield services


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KAGGLE_API_TOKEN", "HF_ENDPOINT", "OPENAI_BASE_URL", "OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)
    monkeypatch.setenv("OPENAI_API_KEY", MODEL_KEY)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", MODEL_KEY)


def kaggle(fake: FakeServices, patience: Patience = PATIENCE) -> Kaggle:
    opened = Kaggle(Login(*KAGGLE_LOGIN), patience, f"{fake.url}/kaggle")
    return fake.clients.enter_context(closing(opened))


def hub(fake: FakeServices, patience: Patience = PATIENCE) -> HuggingFace:
    return fake.clients.enter_context(closing(HuggingFace(patience, f"{fake.url}/hub")))


def index(fake: FakeServices, patience: Patience = PATIENCE) -> PackageIndex:
    opened = PackageIndex(IndexSettings([f"{fake.url}/index/"]), patience)
    return fake.clients.enter_context(closing(opened))


def model(fake: FakeServices, patience: Patience = PATIENCE, limit: int = 5) -> HostedModel:
    endpoint = Endpoint("writer", base_url=f"{fake.url}/openai/v1")
    opened = HostedModel(endpoint, ["weather"], limit, patience)
    return fake.clients.enter_context(closing(opened))


def ask_index(fake: FakeServices, patience: Patience) -> bool:
    return index(fake, patience).exists("packages", "Known.Package")


def ask_hub(fake: FakeServices, patience: Patience) -> bool:
    return hub(fake, patience).exists("models", "gpt2")


def ask_kaggle(fake: FakeServices, patience: Patience) -> bool:
    return kaggle(fake, patience).exists("datasets", "kaggle:ada/iris")


def ask_model(fake: FakeServices, patience: Patience) -> bool:
    fake.model_answers = [json.dumps({"programs": ["import six"]})]
    (found,) = model(fake, patience, limit=1).fetch("weather#1")
    return found.workload is not None


def ask_gateway(fake: FakeServices, patience: Patience) -> bool:
    return len(fetch_recorded(fake.url, GATEWAY_TOKEN, None, patience)) == 1


Ask = Callable[[FakeServices, Patience], bool]
every_service = pytest.mark.parametrize(
    "ask", [ask_index, ask_hub, ask_kaggle, ask_model, ask_gateway]
)


@pytest.fixture
def stocked(fake: FakeServices) -> FakeServices:
    fake.packages = {"known-package", "numpy"}
    fake.models = {"gpt2"}
    fake.kaggle_datasets = {"ada/iris"}
    fake.recorded = [{"imports": ["six"], "count": 3, "day": "2026-11-29"}]
    return fake


@every_service
def test_a_service_answers(stocked: FakeServices, ask: Ask) -> None:
    assert ask(stocked, PATIENCE)


@pytest.mark.parametrize("ask", [ask_index, ask_hub])
def test_a_service_that_asks_for_a_pause_gets_it(stocked: FakeServices, ask: Ask) -> None:
    stocked.troubles = [Trouble("/", 1, 429, {"Retry-After": "1"})]
    assert ask(stocked, PATIENCE)
    first, second = stocked.asked_at
    assert second - first >= 1.0


@every_service
def test_a_service_that_is_busy_is_asked_again(stocked: FakeServices, ask: Ask) -> None:
    stocked.troubles = [Trouble("/", 1, 429, {"Retry-After": "0"}), Trouble("/", 1, 503)]
    assert ask(stocked, PATIENCE)
    assert sum(stocked.asked.values()) == 3


@every_service
def test_a_service_that_asks_for_too_long_a_pause_is_left_alone(
    stocked: FakeServices, ask: Ask
) -> None:
    stocked.troubles = [Trouble("/", 9, 429, {"Retry-After": "86400"})]
    with pytest.raises(ServiceError, match="wants to be asked less often"):
        ask(stocked, PATIENCE)
    assert sum(stocked.asked.values()) == 1


@every_service
@pytest.mark.parametrize(
    ("status", "said"), [(401, "credentials|token"), (500, "answers 500"), (418, "answers 418")]
)
def test_a_refusal_is_told_without_address_or_secret(
    stocked: FakeServices, ask: Ask, status: int, said: str
) -> None:
    stocked.troubles = [Trouble("/", 9, status)]
    with pytest.raises(ServiceError, match=said) as told:
        ask(stocked, PATIENCE)
    assert not any(secret in str(told.value) for secret in (*SECRETS, stocked.url))


@every_service
def test_a_service_that_does_not_answer_is_waited_for_until_the_deadline(
    stocked: FakeServices, ask: Ask
) -> None:
    stocked.troubles = [Trouble("/", 9, hangs=True)]
    with pytest.raises(ServiceError, match="does not answer in time"):
        ask(stocked, HASTE)


@pytest.mark.parametrize("ask", [ask_hub, ask_kaggle, ask_model, ask_gateway])
def test_an_answer_that_is_cut_short_is_no_answer(stocked: FakeServices, ask: Ask) -> None:
    stocked.troubles = [Trouble("/", 9, cut_short=True)]
    with pytest.raises(CorpusError, match=r"cannot be used|cut short"):
        ask(stocked, PATIENCE)


@every_service
def test_nobody_at_the_address_is_told(ask: Ask) -> None:
    with socket.socket() as nobody:  # bound, so that it is nobody else's, and not listening
        nobody.bind(("127.0.0.1", 0))
        gone = FakeServices(f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with gone.clients, pytest.raises(ServiceError, match="cannot be reached"):
            ask(gone, PATIENCE)


def test_what_is_not_there_is_not_there(stocked: FakeServices) -> None:
    assert not index(stocked).exists("packages", "no-such-thing")
    assert not hub(stocked).exists("models", "no/such")
    assert not hub(stocked).exists("datasets", "gpt2")
    assert not hub(stocked).exists("tokenizers", "not a name")
    assert not kaggle(stocked).exists("datasets", "kaggle:ada/none")


def test_a_token_that_the_hub_does_not_know_is_no_answer(
    stocked: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ServiceError, match=r"refuses the credentials, or wants some \(401\)"):
        hub(stocked).exists("models", "no/such")


def test_every_index_is_asked_and_one_that_fails_does_not_hide_the_others(
    stocked: FakeServices, tmp_path: Path
) -> None:
    (tmp_path / "simple" / "own").mkdir(parents=True)
    urls = [f"{stocked.url}/index", (tmp_path / "simple").as_uri()]
    both = stocked.clients.enter_context(closing(PackageIndex(IndexSettings(urls), PATIENCE)))
    assert both.exists("packages", "numpy")
    assert both.exists("packages", "own")
    stocked.troubles = [Trouble("/index", 99, 500)]
    assert both.exists("packages", "own")
    with pytest.raises(ServiceError):
        both.exists("packages", "numpy")


def test_an_index_that_takes_no_head_is_asked_otherwise(stocked: FakeServices) -> None:
    stocked.troubles = [Trouble("HEAD", 2, 405)]
    assert index(stocked).exists("packages", "numpy")
    assert not index(stocked).exists("packages", "none")


def test_the_index_is_the_one_that_pip_is_set_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://ada:secret@index.example/simple/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://more.example/simple")
    settings = IndexSettings.of_pip()
    assert settings.urls == [
        "https://ada:secret@index.example/simple/",
        "https://more.example/simple",
    ]
    assert PackageIndex(settings, PATIENCE).identity == (
        "https://index.example/simple https://more.example/simple"
    )


def test_pip_itself_says_which_index_it_takes_when_it_is_told_of_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    (url,) = IndexSettings.of_pip().urls
    assert re.fullmatch(r"https://\S+/simple/?", url)


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def kernel(source: str, kind: str = "notebook", **metadata: Any) -> dict[str, Any]:
    blob = {"source": source, "language": "python", "kernelType": kind, "slug": "x"}
    return {"blob": blob, "metadata": metadata}


def all_of(source: Any, tmp_path: Path) -> list[Found]:
    journal = Journal(tmp_path / "journal", "test")
    return list(gather(source, journal, lambda names, _: names))


def test_notebooks_of_kaggle_become_workloads(fake: FakeServices, tmp_path: Path) -> None:
    fake.kernels = {
        "ada/rain": kernel(
            notebook("!pip list\nimport pandas", "import my_utils"),
            datasetDataSources=["ada/iris"],
            kernelDataSources=["ada/my-utils"],
        ),
        "bob/rain": kernel("import torch", "script"),
        "eve/rain": kernel("{", "notebook"),
        "old/rain": kernel("library(x)") | {"blob": {"language": "r", "source": "x"}},
        "two/rain": kernel("import beyond_the_limit", "script"),
        "ada/snow": kernel("import other", "script"),
    }
    found = all_of(kaggle(fake).notebooks("rain", 4), tmp_path)
    assert [one.path for one in found] == ["ada/rain", "bob/rain", "eve/rain", "old/rain"]
    first, second = found[0].workload, found[1].workload
    assert first is not None
    assert second is not None
    assert first.resources.packages == ("pandas",)
    assert first.resources.datasets == ("kaggle:ada/iris",)
    assert (first.source, first.domain) == ("kaggle:ada/rain", "rain")
    assert first.code == ("pass\nimport pandas", "import my_utils")
    assert second.resources.packages == ("torch",)
    assert [one.problems for one in found[2:]] == [
        ["not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"],
        ["its language is r"],
    ]


def test_spaces_become_workloads_and_their_own_modules_are_no_packages(
    fake: FakeServices, tmp_path: Path
) -> None:
    fake.spaces = {
        "ada/rain": {
            "app.py": "import gradio, utils\nfrom src.net import Net",
            "utils.py": "import torch",
            "src/net.py": "",
            "lost.py": "gone",
            "README.md": "import nothing",
        },
        "bob/rain": {"index.html": ""},
        "eve/snow": {"app.py": "import other"},
    }
    found = all_of(hub(fake).spaces("rain", 9), tmp_path)
    workload = found[0].workload
    assert workload is not None
    assert workload.resources.packages == ("gradio", "torch")
    assert (workload.source, workload.domain) == ("huggingface:spaces/ada/rain", "rain")
    assert found[0].problems == ["lost.py: is not there any more, or is private"]
    assert found[1].problems == ["has no Python"]
    assert len(found) == 2


@pytest.mark.parametrize("azure", [False, True])
def test_a_hosted_model_writes_workloads(
    fake: FakeServices, tmp_path: Path, *, azure: bool
) -> None:
    fake.model_answers = [
        json.dumps({"programs": ["import six", "import six.moves", "print(1)", "def", 7]}),
        "Of course!\n```json\n" + json.dumps({"programs": ["import numpy"] * 3}) + "\n```",
    ]
    if azure:
        endpoint = Endpoint("writer", azure=f"{fake.url}/azure", azure_api_version="2026-01-01")
    else:
        endpoint = Endpoint("writer", base_url=f"{fake.url}/openai/v1")
    with closing(HostedModel(endpoint, ["weather"], 7, PATIENCE)) as writer:
        found = all_of(writer, tmp_path)
    packages = [one.workload.resources.packages for one in found if one.workload]
    assert packages == [("six",), ("six.moves",), ("numpy",), ("numpy",)]
    assert [one.problems for one in found if not one.workload] == [
        ["imports no package"],
        ["is no Python: invalid syntax (<unknown>, line 1)"],
        ["is no program"],
    ]
    workload = found[0].workload
    assert workload is not None
    assert (workload.source, workload.domain) == ("model:writer", "weather")


def test_a_model_that_answers_rubbish_costs_only_that_answer(
    fake: FakeServices, tmp_path: Path
) -> None:
    fake.model_answers = ["I would rather not.", json.dumps({"programs": ["import six"]})]
    found = all_of(model(fake, limit=10), tmp_path)
    assert [one.workload is not None for one in found] == [False, True]
    assert "is of no use" in found[0].problems[0]


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"programs": 3}', "[" * 100_000])
def test_an_answer_without_programs_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        programs_in(answer)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (Endpoint("m", base_url="http://127.0.0.1:1"), "set OPENAI_API_KEY"),
        (Endpoint("m", azure="http://127.0.0.1:1"), "AZURE_OPENAI_API_KEY.*--azure-api-version"),
    ],
)
def test_a_model_without_a_key_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("AZURE_OPENAI_API_KEY")
    with pytest.raises(ServiceError, match=said):
        endpoint.connect(PATIENCE)


def test_a_missing_library_is_told_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "readie_pipeline.corpus.kaggle")
    library = "kagglesdk.datasets.services.dataset_api_service"
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"Kaggle needs .* pip install 'readie\[corpus\]'"):
        open_kaggle(None, PATIENCE)


def test_a_service_that_cannot_be_opened_says_so_when_it_is_asked() -> None:
    def fail() -> Owner:
        raise MissingExtraError("Kaggle")

    owner = Deferred("Kaggle", fail)
    with pytest.raises(ServiceError, match="needs a client library"):
        owner.exists("datasets", "kaggle:a/b")


def test_an_item_that_fails_is_left_for_another_run(fake: FakeServices, tmp_path: Path) -> None:
    fake.kernels = {f"ada/rain{n}": kernel(f"import p{n}", "script") for n in range(4)}
    fake.troubles = [Trouble("rain1", 1, 418)]
    found = all_of(kaggle(fake).notebooks("rain", 9), tmp_path)
    assert [one.problems for one in found] == [(), ["Kaggle answers 418"], (), ()]
    again = all_of(kaggle(fake).notebooks("rain", 9), tmp_path)
    assert [one.workload is not None for one in again] == [True] * 4
    assert fake.asked_for("rain0") == 1
    assert fake.asked_for("rain1") == 2


def test_a_service_that_fails_again_and_again_ends_the_run_and_loses_nothing(
    fake: FakeServices, tmp_path: Path
) -> None:
    fake.kernels = {f"ada/rain{n}": kernel(f"import p{n}", "script") for n in range(9)}
    fake.troubles = [Trouble('"kernelSlug": "rain2"', 9, 401)] + [
        Trouble(f'"kernelSlug": "rain{n}"', 9, 401) for n in (3, 4)
    ]
    with pytest.raises(ServiceError, match="refuses the credentials"):
        all_of(kaggle(fake).notebooks("rain", 9), tmp_path)
    fake.troubles = []
    assert len(all_of(kaggle(fake).notebooks("rain", 9), tmp_path)) == 9
    assert fake.asked_for("rain0") == fake.asked_for("rain1") == 1


def test_recorded_calls_are_counted_over_all_days(fake: FakeServices) -> None:
    fake.recorded = [
        {"imports": ["pandas", "json", "numpy"], "count": 3, "day": "2026-11-29"},
        {"imports": ["numpy", "pandas"], "count": 4, "day": "2026-11-28"},
        {"imports": [], "count": 1, "day": "2026-11-28"},
    ]
    nothing, both = fetch_recorded(fake.url, GATEWAY_TOKEN, 2, PATIENCE)
    assert (both.resources.packages, both.count) == (("numpy", "pandas"), 7)
    assert (nothing.resources.packages, nothing.count) == ((), 1)
    assert fake.asked_for("days=2") == 1
    with pytest.raises(ServiceError, match="answers 400: days: '9' is not a number from 1 to 7"):
        fetch_recorded(fake.url, GATEWAY_TOKEN, 9, PATIENCE)
    with pytest.raises(ServiceError, match=r"does not take the token \(401\)"):
        fetch_recorded(fake.url, "wrong", 2, PATIENCE)
