"""``readie-pipeline corpus`` as an operator runs it, against made-up services on loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from readie_pipeline.cli import cli
from readie_pipeline.commands.corpus_services import gateway_token, kaggle_login
from readie_pipeline.corpus.dataset import Dataset, load_dataset
from readie_pipeline.errors import CorpusError, ServiceError
from readie_pipeline.workspace import Workspace
from support.fake_services import (
    GATEWAY_TOKEN,
    HUB_TOKEN,
    KAGGLE_LOGIN,
    LONGEST_HANG_S,
    MODEL_KEY,
    SECRETS,
    FakeServices,
    Trouble,
    fake_services,
)
from support.processes import tied

PROGRAM = "import numpy, six\nfrom transformers import AutoModel\nAutoModel.from_pretrained({!r})"


@pytest.fixture
def fake() -> Iterator[FakeServices]:
    with fake_services() as services:
        services.packages = {"numpy", "gradio", "transformers"}
        services.models = {"gpt2"}
        services.kaggle_datasets = {"ada/iris"}
        services.spaces = {"ada/rain": {"app.py": "import gradio, utils", "utils.py": ""}}
        services.kernels = {
            f"ada/rain{number}": {
                "blob": {"source": f"import numpy, nosuch{number}", "kernelType": "script"},
                "metadata": {"datasetDataSources": ["ada/iris"]},
            }
            for number in range(3)
        }
        programs = {"programs": [PROGRAM.format("gpt2"), PROGRAM.format("no/model")]}
        services.model_answers = [json.dumps(programs)]
        services.recorded = [
            {"imports": ["numpy"], "count": 40, "day": "2026-11-29"},
            {"imports": ["numpy"], "count": 2, "day": "2026-11-28"},
        ]
        yield services


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path),
        "KAGGLE_API_TOKEN": "",
        "KAGGLE_USERNAME": KAGGLE_LOGIN[0],
        "KAGGLE_KEY": KAGGLE_LOGIN[1],
        "HF_TOKEN": HUB_TOKEN,
        "OPENAI_API_KEY": MODEL_KEY,
        "READIE_AUTH_TOKEN": GATEWAY_TOKEN,
    }


def corpus(fake: FakeServices, data: Path, *arguments: object) -> list[str]:
    places = {
        "--kaggle-url": f"{fake.url}/kaggle",
        "--hugging-face-url": f"{fake.url}/hub",
        "--package-index": f"{fake.url}/index",
        "--data": data,
    }
    given = [part for option in places.items() for part in option]
    return list(map(str, ["corpus", *given, *arguments]))


def run(arguments: list[str], environment: dict[str, str]) -> Result:
    done = CliRunner().invoke(cli, arguments, env=environment)
    assert done.exit_code == 0, done.output
    return done


def read(data: Path) -> Dataset:
    return load_dataset((data / "datasets/cpu.json").read_bytes())


def test_a_corpus_is_read_from_every_service_and_checked(
    fake: FakeServices, environment: dict[str, str], tmp_path: Path
) -> None:
    arguments = corpus(
        fake,
        tmp_path / "data",
        *("--kaggle", "rain", "--hugging-face", "rain", "--limit", 2),
        *("--model", "writer", "--domain", "text", "--model-url", f"{fake.url}/openai/v1"),
        *("--recorded", fake.url, "--days", 2),
    )
    done = run(arguments, environment)
    dataset = read(tmp_path / "data")
    assert {one.source: one.resources.names() for one in dataset.workloads} == {
        "recorded": ("numpy",),
        "kaggle:ada/rain0": ("numpy", "dataset:kaggle:ada/iris"),
        "kaggle:ada/rain1": ("numpy", "dataset:kaggle:ada/iris"),
        "huggingface:spaces/ada/rain": ("gradio",),
        # The second program, whose model does not exist.
        "model:writer": ("numpy", "six", "transformers", "transformers.AutoModel"),
    }
    assert dataset.counts()[0] == 42
    assert "6 workloads for 47 calls" in done.stdout
    assert "3 unknown, dropped: model:no/model 1, nosuch0 1, nosuch1 1" in done.stdout
    assert "models: gpt2 1" in done.stdout
    assert fake.asked_for("/index/utils") == 0
    written = [file.read_text() for file in (tmp_path / "data").rglob("*") if file.is_file()]
    said = [done.stdout, done.stderr, *written]
    assert not [secret for secret in SECRETS if any(secret in text for text in said)]
    # The answers are kept, what was gathered is not needed any more.
    assert sorted(file.name for file in (tmp_path / "data/datasets").iterdir()) == [
        "answers.journal",
        "cpu.json",
    ]


def test_a_killed_run_goes_on_where_it_was(
    fake: FakeServices, environment: dict[str, str], tmp_path: Path
) -> None:
    arguments = corpus(fake, tmp_path, "--kaggle", "rain")
    fake.troubles = [Trouble('"kernelSlug": "rain2"', 1, hangs=True)]
    first = subprocess.Popen(
        tied(sys.executable, "-m", "readie_pipeline", *arguments),
        env={**os.environ, **environment},
    )
    try:
        assert fake.hanging.wait(LONGEST_HANG_S)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert not (tmp_path / "datasets/cpu.json").exists()

    done = run(arguments, environment)
    assert "goes on where the last run was: 2 answers are there" in done.stdout
    assert len(read(tmp_path).workloads) == 3
    assert fake.asked_for('"kernelSlug": "rain0"') == 1
    assert fake.asked_for('"kernelSlug": "rain1"') == 1

    # And a run that is repeated asks nobody whether things exist.
    questions = fake.asked_for("/index/") + fake.asked_for("GetDataset")
    run(arguments, environment)
    assert fake.asked_for("/index/") + fake.asked_for("GetDataset") == questions


def test_what_could_not_be_checked_is_checked_later(
    fake: FakeServices, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "load.py").write_text(PROGRAM.format("gpt2"))
    (folder / "lose.py").write_text("import nosuch")
    fake.troubles = [Trouble("/hub/", 99, 401), Trouble("/index/", 99, 404)]
    done = run(corpus(fake, tmp_path, "--folder", folder), environment)
    assert "warning: the Hugging Face hub" in done.stderr
    assert "1 workloads use what could not be checked" in done.stderr
    assert "transformers 1" in done.stdout
    fake.troubles = []
    again = run(corpus(fake, tmp_path, "--append"), environment)
    assert "could not be checked" not in again.stderr
    assert [one.unchecked for one in Workspace(tmp_path, "cpu").read_dataset().workloads] == [
        (),
        (),
    ]


def test_a_refused_key_ends_the_run_with_a_sentence(
    fake: FakeServices, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KAGGLE_KEY"] = "wrong-secret"
    done = CliRunner().invoke(cli, corpus(fake, tmp_path, "--kaggle", "rain"), env=environment)
    assert isinstance(done.exception, ServiceError)
    assert str(done.exception) == (
        "Kaggle refuses the credentials, or wants some (401); 0 answers are kept, the same command "
        "goes on from there"
    )
    assert not (tmp_path / "datasets/cpu.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --folder"),
        (("--model", "writer"), "--model writes about each --domain"),
        (
            ("--model", "m", "--domain", "d", "--model-url", "u", "--azure-endpoint", "a"),
            "either --model-url or --azure-endpoint",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, ["corpus", *arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_nobody_is_asked_when_nothing_is_to_be_checked_and_no_code_stays(
    fake: FakeServices, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "lose.py").write_text("import nosuch")
    run(corpus(fake, tmp_path, "--folder", folder, "--no-check", "--no-code"), environment)
    (workload,) = read(tmp_path).workloads
    assert (workload.resources.packages, workload.code) == (("nosuch",), ())
    assert not fake.asked


def test_no_command_loads_a_library_of_the_extra_before_it_is_needed() -> None:
    load = """
import sys
from readie_pipeline.cli import cli
for name in cli.list_commands(None):
    assert cli.get_command(None, name) is not None
print(*sys.modules)
"""
    loaded = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, timeout=100, check=True
    )
    extra = {"httpx2", "huggingface_hub", "kagglesdk", "openai"}
    assert extra.isdisjoint(loaded.stdout.split())


def test_a_token_comes_from_a_file_the_environment_or_the_service_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = "http://127.0.0.1:8777"
    monkeypatch.setenv("READIE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("READIE_AUTH_TOKEN", raising=False)
    assert gateway_token(url, None) == ""
    kept = tmp_path / "token"
    kept.write_text("up:of-readie-up\n")
    (tmp_path / "service.json").write_text(json.dumps({"url": url, "token_file": str(kept)}))
    assert gateway_token(f"{url}/", None) == "of-readie-up"
    assert gateway_token("http://other.example", None) == ""
    monkeypatch.setenv("READIE_AUTH_TOKEN", "of-the-environment")
    assert gateway_token(url, None) == "of-the-environment"
    given = tmp_path / "given"
    given.write_text("of-a-file")
    assert gateway_token(url, given) == "of-a-file"
    given.write_text("")
    with pytest.raises(CorpusError, match="given holds no token"):
        gateway_token(url, given)


def test_kaggle_is_logged_in_to_as_by_its_own_tools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert kaggle_login() is None
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))
    with pytest.raises(CorpusError, match="holds no username and key"):
        kaggle_login()
    (tmp_path / "kaggle.json").write_text('{"username": "ada", "key": "k1"}')
    assert kaggle_login() == ("ada", "k1")
    monkeypatch.setenv("KAGGLE_USERNAME", "bob")
    monkeypatch.setenv("KAGGLE_KEY", "k2")
    assert kaggle_login() == ("bob", "k2")


def test_a_command_loads_only_its_own_libraries() -> None:
    load = "import sys; from readie_pipeline.cli import cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, timeout=100, check=True
    )
    assert {"boto3", "matplotlib", "numpy", "rq"}.isdisjoint(loaded.stdout.split())
