"""Reading people's code: scripts, notebooks, import sets; broken ones among them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from readie_pipeline.corpus.dataset import Dataset, Resources, Workload, dump_dataset, load_dataset
from readie_pipeline.corpus.folder import read_folder
from readie_pipeline.corpus.import_sets import read_import_sets
from readie_pipeline.corpus.notebooks import NotebookError, python_cells, without_magics
from readie_pipeline.corpus.reading import read_code
from readie_pipeline.corpus.recorded import load_recorded
from readie_pipeline.corpus.sources import Found
from readie_pipeline.errors import CorpusError


def notebook(*cells: str, **metadata: Any) -> bytes:
    return json.dumps(
        {
            "nbformat": 4,
            "metadata": metadata,
            "cells": [{"cell_type": "markdown", "source": "import prose"}]
            + [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells],
        }
    ).encode()


@pytest.mark.parametrize(
    ("cell", "imports"),
    [
        ("%matplotlib inline\nimport numpy", ["numpy"]),
        ("!pip install pandas\nimport pandas", ["pandas"]),
        ("files = !ls\nimport scipy", ["scipy"]),
        ("out = %timeit -o f()\nimport scipy", ["scipy"]),
        ("if True:\n    !ls\nimport torch", ["torch"]),
        ("%%time\nimport torch", ["torch"]),
        ("%%bash\nimport torch", []),
        ("%%html\n<b>import torch</b>", []),
        ("numpy.array?\nimport numpy", ["numpy"]),
        ("x = a %\\\n  b\nimport numpy", ["numpy"]),
        ("d = {'a': 1}\nd['a'] = 5 % 3\nimport numpy", ["numpy"]),
        ("import numpy\nx = ('%s'\n     % numpy)", ["numpy"]),
        ("if True:\n    %time import numpy", ["numpy"]),
        ("import scipy; scipy.linalg?", ["scipy"]),
        ("!pip install \\\n   torch\nimport torch", ["torch"]),
    ],
)
def test_what_only_ipython_understands_does_not_hide_imports(cell: str, imports: list[str]) -> None:
    assert list(read_code(python_cells(notebook(cell))).resources.packages) == imports


def test_python_that_looks_like_a_magic_is_left_alone() -> None:
    cell = "x = ('%s'\n     % 1)\n"
    assert without_magics(cell) == cell


def test_what_a_notebook_writes_to_files_is_its_own(tmp_path: Path) -> None:
    cells = (
        "%%writefile -a own.py\nimport six",
        "%%file helpers/deep.py\nimport yaml",
        "%%writefile /content/requests/elsewhere.py\n",
        "%%writefile notes.txt\nimport prose",
        "import own, helpers.deep, elsewhere, requests",
    )
    (tmp_path / "a.ipynb").write_bytes(notebook(*cells))
    (found,) = read_folder(tmp_path)
    assert found.workload is not None
    assert found.workload.resources.packages == ("six", "yaml", "requests")
    assert found.problems == ()


def test_a_broken_cell_does_not_hide_the_others() -> None:
    cells = python_cells(
        notebook("import numpy", "print 'old'\nimport pandas as pd\nfor", "import six")
    )
    reading = read_code(cells)
    assert reading.resources.packages == ("numpy", "pandas", "six")
    assert len(reading.problems) == 1


def test_a_magic_keeps_its_indentation() -> None:
    assert without_magics("for x in y:\n    %run x\n") == "for x in y:\n    pass\n"


def test_an_old_notebook_is_read_too() -> None:
    old = {
        "nbformat": 3,
        "worksheets": [{"cells": [{"cell_type": "code", "input": ["import six"]}]}],
    }
    assert python_cells(json.dumps(old).encode()) == ["import six"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a notebook"),
        (notebook("x", kernelspec={"language": "R"}), "its language is r"),
        (notebook("x", language_info={"name": "julia"}), "its language is julia"),
    ],
)
def test_what_is_no_python_notebook_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotebookError, match=reason):
        python_cells(data)


@pytest.mark.parametrize("value", [{}, {"cells": 3}, {"cells": [3, {"cell_type": "code"}]}])
def test_a_notebook_without_cells_is_empty(value: Any) -> None:
    assert python_cells(json.dumps(value).encode()) == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "train.py": "import utils, torch\nfrom helpers import clean\nimport numpy.linalg",
        "utils.py": "import requests",
        "helpers/__init__.py": "",
        "notebooks/explore.ipynb": notebook("import utils\nimport pandas").decode(),
        "notebooks/local.py": "import explore_more, six",
        "notebooks/explore_more.py": "",
        "latin.py": "# -*- coding: latin-1 -*-\nimport six  # \xe9",
        ".hidden/secret.py": "import hidden",
        "venv/pyvenv.cfg": "",
        "venv/lib/thing.py": "import inside",
        "node_modules/x.py": "import node",
        "readme.md": "import nothing",
        "bad.py": "import six\n\0",
        "broken.ipynb": "{",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    return tmp_path


def imports_by_file(found: list[Found]) -> dict[str, tuple[str, ...]]:
    return {one.path: tuple(one.workload.resources.packages) for one in found if one.workload}


def test_a_folder_of_scripts_and_notebooks_becomes_workloads(project: Path) -> None:
    found = list(read_folder(project))
    assert imports_by_file(found) == {
        "bad.py": ("six",),
        "latin.py": ("six",),
        "train.py": ("torch", "numpy.linalg"),
        "utils.py": ("requests",),
        "helpers/__init__.py": (),
        "notebooks/explore.ipynb": ("pandas",),
        "notebooks/explore_more.py": (),
        "notebooks/local.py": ("six",),
    }
    assert {one.path: one.problems for one in found if not one.workload} == {
        "broken.ipynb": [
            "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        ]
    }


def test_a_compiled_module_beside_a_script_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    (tmp_path / "main.py").write_text("import fast, six")
    (found,) = read_folder(tmp_path)
    assert found.workload is not None
    assert found.workload.resources.packages == ("six",)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "nowhere.py").symlink_to("gone")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "good.py").write_text("import six")
    assert [one.path for one in read_folder(tmp_path)] == ["good.py"]


def test_a_local_module_is_never_taken_for_a_public_package(project: Path) -> None:
    names = {name for one in imports_by_file(list(read_folder(project))).values() for name in one}
    assert names.isdisjoint({"utils", "helpers", "explore_more"})


def test_a_workload_names_its_file_and_keeps_its_code(project: Path) -> None:
    with_code = {one.path: one.workload for one in read_folder(project)}["notebooks/explore.ipynb"]
    assert with_code is not None
    assert (with_code.source, with_code.domain) == ("folder:notebooks/explore.ipynb", "notebooks")
    assert with_code.code == ("import utils\nimport pandas",)


def test_a_module_from_elsewhere_in_the_folder_is_its_own_unless_it_is_installed(
    project: Path,
) -> None:
    (project / "src").mkdir()
    (project / "src" / "shop.py").write_text("")
    (project / "src" / "torch.py").write_text("")
    (project / "notebooks" / "sell.py").write_text("import shop, torch")

    def found(*installed: str) -> tuple[str, ...]:
        return imports_by_file(list(read_folder(project, installed)))["notebooks/sell.py"]

    assert found() == ()
    assert found("torch") == ("torch",)


def test_a_model_that_lies_in_the_folder_is_no_name_of_a_hub(project: Path) -> None:
    (project / "models" / "mine").mkdir(parents=True)
    code = "from transformers import AutoModel as M\nM.from_pretrained('models/mine')"
    (project / "load.py").write_text(f"{code}\nM.from_pretrained('gpt2')")
    found = {one.path: one.workload for one in read_folder(project)}["load.py"]
    assert found is not None
    assert found.resources.models == ("gpt2",)


def test_the_same_folder_gives_the_same_corpus(project: Path) -> None:
    assert list(read_folder(project)) == list(read_folder(project))


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="is no folder"):
        list(read_folder(tmp_path / "nowhere"))


def test_import_sets_are_read_without_the_standard_library(tmp_path: Path) -> None:
    file = tmp_path / "sets.jsonl"
    file.write_text('{"id": "a", "kind": "script", "imports": ["os.path", "six", "six"]}\n\n')
    (workload,) = read_import_sets(file)
    assert workload == Workload("a", "sets.jsonl:1", Resources(("six",)), "script")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: not JSON"),
        ('{"imports": "six"}', "line 2: imports must be a list"),
        ("[]", "line 2: imports must be a list"),
        ('{"imports": [1]}', "line 2: imports must be a list"),
        ('{"imports": ["six", ""]}', "line 2: '' is no name of a module"),
        ('{"imports": [".x"]}', "line 2: '.x' is no name of a module"),
        ('{"imports": ["a b"]}', "line 2: 'a b' is no name of a module"),
        ('{"imports": ["lambda"]}', "line 2: 'lambda' is no name of a module"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "sets.jsonl"
    file.write_text('{"imports": []}\n' + line)
    with pytest.raises(CorpusError, match=reason):
        list(read_import_sets(file))


def test_a_saved_file_of_recorded_calls_is_read(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    line = '{"imports": ["six", "os", "six; rm", ""], "count": 2, "day": "2026-11-29"}\n'
    file.write_text(line + "\n" + line)
    (workload,) = load_recorded(file)
    assert (workload.source, workload.resources.packages) == ("recorded", ("six",))
    assert workload.count == 4


@pytest.mark.parametrize(
    "line",
    [
        '{"imports": ["six"], "count": 2',
        '{"imports": ["six"]}',
        '{"imports": "six", "count": 1}',
        '{"imports": [1], "count": 1}',
        '{"imports": [], "count": 0}',
    ],
)
def test_a_bad_line_of_recorded_calls_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "recorded.jsonl"
    file.write_text(f"\n{line}")
    with pytest.raises(CorpusError, match=r"recorded.jsonl, line 2: "):
        load_recorded(file)


def test_a_corpus_reads_back_as_it_was_written() -> None:
    resources = Resources(("numpy",), ("numpy.array",), ("squad",), ("gpt2",), ("gpt2",))
    workload = Workload("a", "folder:x.py", resources, "nlp", ("print('\udc80')",))
    counted = Workload("b", "b", Resources(), count=7, unchecked=("model:gpt2",))
    dataset = Dataset("cpu", (workload, counted))
    assert load_dataset(dump_dataset(dataset)) == dataset
    assert dataset.counts() == [1, 7]
    assert dataset.requests()[0] == (
        "numpy",
        "numpy.array",
        "dataset:squad",
        "model:gpt2",
        "tokenizer:gpt2",
    )


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 9}', b'{"version": 1, "items": 3}'])
def test_what_is_no_corpus_is_refused(data: bytes) -> None:
    with pytest.raises(CorpusError):
        load_dataset(data)
