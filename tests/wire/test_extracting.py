"""Imports read from source text."""

import json
import sys
import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.extracting import (
    MAX_NAMES,
    MAX_SOURCE_CHARACTERS,
    How,
    extract_imports,
)


def needs(source: str) -> set[str]:
    return set(extract_imports(textwrap.dedent(source)).needs)


def test_imports_are_found_wherever_they_stand() -> None:
    found = extract_imports(
        textwrap.dedent("""
        import numpy as np, pandas.core
        from sklearn import linear_model
        def f():
            class K:
                async def m(self):
                    try:
                        import torch
                    except ImportError:
                        import jax
        """)
    )
    assert found.imports == ("numpy", "pandas.core", "sklearn", "torch", "jax")
    assert found.candidates == ("sklearn.linear_model",)
    assert not found.problem


def test_namespace_packages_keep_their_full_names() -> None:
    assert needs("from google.cloud import storage, secretmanager") == {
        "google.cloud",
        "google.cloud.storage",
        "google.cloud.secretmanager",
    }


def test_constant_names_are_found_through_every_alias_of_the_import_functions() -> None:
    found = extract_imports(
        textwrap.dedent("""
        import importlib as il, importlib.util
        from importlib import import_module as load
        il.import_module("pandas")
        importlib.import_module("numpy.linalg")
        load("scipy")
        __import__("torch")
        def f(name="requests"):
            __import__(name)
        """)
    )
    assert found.imports == ("pandas", "numpy.linalg", "scipy", "torch")
    assert found.dynamic == 1


@pytest.mark.parametrize("guard", ["TYPE_CHECKING", "typing.TYPE_CHECKING", "t.TYPE_CHECKING"])
def test_what_only_type_checkers_import_is_left_out(guard: str) -> None:
    source = f"""
        if {guard}:
            import torch
        else:
            import numpy
        if not {guard}:
            import pandas
        else:
            import jax
        """
    assert needs(source) == {"numpy", "pandas"}


def test_the_standard_library_is_left_out_and_relative_imports_are_kept_apart() -> None:
    found = extract_imports("import os.path, json\nfrom . import near\nfrom ..far import thing")
    assert found.needs == ()
    assert found.relative == (".", ".near", "..far", "..far.thing")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import x\ndef f(:", "line 2"),
        ("import x\0", "null"),
        ("import x\n" + "(" * 300 + ")" * 300, "nested"),
        ("import x\n" + "-" * 50_000 + "1", "nested"),
        ("import x\n" + "1" + "+1" * 100_000, "nested"),
        ("import x\n" + "#" * MAX_SOURCE_CHARACTERS, "limit"),
        ("\n".join(f"import m{n}" for n in range(MAX_NAMES + 1)), "too large"),
    ],
)
def test_hostile_text_gives_a_reason_and_never_raises(source: str, reason: str) -> None:
    assert reason in extract_imports(source).problem


def test_the_longest_text_takes_bounded_time() -> None:
    source = ("import numpy\n" + "x = [1, 2, 3]\n" * 100_000)[:MAX_SOURCE_CHARACTERS]
    started = time.process_time()  # which no other program on the machine adds to
    extract_imports(source)
    assert time.process_time() - started < 60


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = extract_imports(f"import numpy\n{text}")
    assert found.problem or "numpy" in found.needs
    json.dumps(found.needs)


def test_reading_imports_nothing() -> None:
    before = set(sys.modules)
    extract_imports("import this, antigravity, sklearn")
    assert set(sys.modules) == before


def test_each_name_is_told_with_where_it_was_found_first() -> None:
    source = """
    import numpy, os

    class Model:
        def fit(self):
            from sklearn import svm
            import numpy
            __import__("redis")
    """
    found = extract_imports(textwrap.dedent(source)).seen
    assert [(one.name, one.how, one.function, one.line) for one in found] == [
        ("sklearn.svm", How.FROM, "Model.fit", 6),
        ("numpy", How.IMPORT, "", 2),
        ("sklearn", How.FROM, "Model.fit", 6),
        ("redis", How.CALL, "Model.fit", 8),
    ]
