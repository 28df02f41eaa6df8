"""What a corpus uses is asked of whoever owns it: once, and never what is the user's own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest

from readie_pipeline.corpus.answers import FRESH_DAYS, Answers
from readie_pipeline.corpus.checking import Checked, Owners, check
from readie_pipeline.corpus.dataset import Resources, Workload
from readie_pipeline.corpus.distribution_names import distributions_for, importable_unit
from readie_pipeline.corpus.folder import read_folder
from readie_pipeline.errors import ServiceError

TODAY = date(2026, 11, 29)


@dataclass
class Clerk:
    """An owner of resources that remembers what it was asked."""

    title: str
    has: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    away: bool = False

    @property
    def identity(self) -> str:
        return self.title

    def exists(self, kind: str, name: str) -> bool:
        self.asked.append(name)
        if self.away:
            raise ServiceError(f"{self.title} is away")
        return name in self.has


@dataclass
class Clerks:
    folder: Path
    index: Clerk = field(default_factory=lambda: Clerk("index", {"pandas", "scikit-learn"}))
    hub: Clerk = field(default_factory=lambda: Clerk("hub", {"gpt2", "squad"}))
    kaggle: Clerk = field(default_factory=lambda: Clerk("kaggle", {"kaggle:ada/iris"}))

    def check(
        self, *workloads: Workload, installed: Sequence[str] = (), today: date = TODAY
    ) -> Checked:
        owners = Owners(self.index, self.hub, self.kaggle)
        answers = Answers(self.folder / "answers.journal", today)
        return check(workloads, owners, installed, answers, lambda names, _: names)


@pytest.fixture
def clerks(tmp_path: Path) -> Clerks:
    return Clerks(tmp_path)


def uses(*packages: str, **others: tuple[str, ...]) -> Workload:
    return Workload("a", "test", Resources(packages, **others))


def test_each_resource_is_asked_of_its_owner_and_what_is_unknown_is_dropped(
    clerks: Clerks,
) -> None:
    workload = uses(
        "pandas.io",
        "sklearn",
        "nosuch.thing",
        candidates=("nosuch.thing.f", "sklearn.svm"),
        datasets=("squad", "kaggle:ada/iris", "kaggle:ada/none", "sklearn:rcv1"),
        models=("gpt2", "nomodel"),
        tokenizers=("gpt2",),
    )
    checked = clerks.check(workload)
    assert checked.workloads[0].resources == Resources(
        ("pandas.io", "sklearn"),
        ("sklearn.svm",),
        ("squad", "kaggle:ada/iris", "sklearn:rcv1"),
        ("gpt2",),
        ("gpt2",),
    )
    assert checked.unknown == {"nosuch": 1, "dataset:kaggle:ada/none": 1, "model:nomodel": 1}
    assert sorted(clerks.index.asked) == ["nosuch", "pandas", "scikit-learn"]
    assert sorted(clerks.hub.asked) == ["gpt2", "gpt2", "nomodel", "squad"]
    assert sorted(clerks.kaggle.asked) == ["kaggle:ada/iris", "kaggle:ada/none"]


def test_what_is_installed_or_standard_needs_no_question(clerks: Clerks) -> None:
    workload = uses("private.thing", "json", "google.auth.jwt", "google")
    checked = clerks.check(workload, installed=["private", "google.auth"])
    assert checked.workloads == [workload]
    assert not clerks.index.asked


def test_nothing_is_asked_twice_until_the_answer_is_old(clerks: Clerks) -> None:
    clerks.check(uses("pandas", "nosuch"))
    clerks.check(uses("pandas", "nosuch"), today=TODAY + timedelta(FRESH_DAYS))
    assert sorted(clerks.index.asked) == ["nosuch", "pandas"]
    clerks.check(uses("pandas"), today=TODAY + timedelta(FRESH_DAYS + 1))
    assert clerks.index.asked.count("pandas") == 2


def test_what_nobody_could_say_stays_and_is_asked_again(clerks: Clerks) -> None:
    clerks.hub.away = True
    first = clerks.check(uses("pandas", "nosuch", models=("gpt2", "nomodel")))
    (workload,) = first.workloads
    assert workload.resources.models == ("gpt2", "nomodel")
    assert workload.unchecked == ("model:gpt2", "model:nomodel")
    assert first.silent == {"hub": "hub is away"}
    clerks.hub.away = False
    second = clerks.check(workload)
    assert second.workloads[0].resources == Resources(("pandas",), models=("gpt2",))
    assert not second.workloads[0].unchecked
    assert clerks.index.asked.count("pandas") == 1


def test_a_service_that_is_away_is_not_asked_about_everything(clerks: Clerks) -> None:
    clerks.index.away = True
    names = [f"package{number}" for number in range(100)]
    checked = clerks.check(uses(*names))
    assert len(clerks.index.asked) <= 8  # what was under way together with the first
    assert checked.workloads[0].resources.packages == tuple(names)
    assert len(checked.workloads[0].unchecked) == 100


def test_a_folder_s_own_modules_are_asked_about_nowhere(clerks: Clerks, tmp_path: Path) -> None:
    """As in bndr/pipreqs#465: an index that has a `utils` makes no public package of one's own."""
    folder = tmp_path / "project"
    (folder / "helpers").mkdir(parents=True)
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "utils.py").write_text("def g(): return 1")
    (folder / "helpers" / "__init__.py").write_text("")
    (folder / "src" / "deep" / "secretproject.py").write_text("")
    script = "import utils, pandas\nfrom helpers import x\nimport secretproject\n"
    (folder / "script.py").write_text(script + "def f(): return utils.g()")
    clerks.index.has |= {"utils", "helpers", "secretproject"}
    found = [one.workload for one in read_folder(folder) if one.workload]
    checked = clerks.check(*found)
    assert clerks.index.asked == ["pandas"]
    assert {name for one in checked.workloads for name in one.resources.names()} == {"pandas"}


@pytest.mark.parametrize(
    ("module", "unit", "distributions"),
    [
        ("numpy.linalg", "numpy", ["numpy"]),
        ("sklearn.svm", "sklearn", ["scikit-learn"]),
        ("my_package.x", "my_package", ["my-package"]),
        (
            "google.cloud.storage.blob",
            "google.cloud.storage",
            ["google-cloud-storage", "google-cloud"],
        ),
        ("google.protobuf.message", "google.protobuf", ["protobuf"]),
        ("azure.identity", "azure.identity", ["azure-identity"]),
        ("google", "google", []),
    ],
)
def test_an_index_is_asked_for_what_may_provide_a_module(
    module: str, unit: str, distributions: list[str]
) -> None:
    assert importable_unit(module) == unit
    assert distributions_for(unit) == distributions
