"""Imports found in code objects, and what each name is taken for."""

import functools
import importlib as il
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from packaging.version import Version

from readie._distributions import (
    installed_versions,
    likely_distribution,
    owning_distributions,
)
from readie._imports import ImportScan, find_imports
from readie_wire.extracting import How

OWN_MODULE = __name__


def found_in(function: Callable[..., Any]) -> set[str]:
    return set(find_imports(function, OWN_MODULE).imports)


def test_imports_in_a_function_are_found_with_their_submodules() -> None:
    def function() -> object:
        import json
        import os

        import numpy.linalg
        from sklearn import ensemble as forest
        from sklearn import linear_model

        return numpy, linear_model, forest, os, json

    assert found_in(function) == {
        "numpy.linalg",
        "sklearn",
        "sklearn.linear_model",
        "sklearn.ensemble",
    }


def test_from_an_installed_package_only_modules_count_as_submodules() -> None:
    def function() -> object:
        from packaging import tags
        from packaging.version import Version as Number

        return Number, tags

    assert found_in(function) == {"packaging.version", "packaging", "packaging.tags"}


def test_namespace_packages_keep_their_full_names() -> None:
    def function() -> int:
        from google.cloud import secretmanager, storage  # noqa: F401

        return 1

    assert found_in(function) == {
        "google.cloud",
        "google.cloud.storage",
        "google.cloud.secretmanager",
    }


def test_dynamic_imports_of_constants_are_found_through_every_alias() -> None:
    def function(name: str = "requests") -> object:
        import builtins
        import importlib as inner
        from importlib import import_module as load

        inner.import_module("pandas")
        load("scipy.stats", package=None)
        il.import_module("docker")
        builtins.__import__("redis")
        __import__("starlette.routing")
        return __import__(name)

    found = find_imports(function, OWN_MODULE)
    assert set(found.imports) == {"pandas", "scipy.stats", "docker", "redis", "starlette.routing"}
    assert len(found.dynamic) == 1


def test_each_import_is_told_with_where_it_was_seen_first() -> None:
    def outer() -> object:
        import numpy.linalg

        def inner() -> object:
            from packaging import tags

            return il.import_module("docker"), Version, tags

        return numpy.linalg, inner

    first = outer.__code__.co_firstlineno
    seen = find_imports(outer, OWN_MODULE).imports
    found = {name: (one.how, one.function, one.line - first) for name, one in seen.items()}
    name = outer.__qualname__
    within = f"{name}.<locals>.inner"
    assert found == {
        "numpy.linalg": (How.IMPORT, name, 1),
        "packaging": (How.FROM, within, 4),
        "packaging.tags": (How.FROM, within, 4),
        "docker": (How.CALL, within, 6),
        "packaging.version": (How.GLOBAL, within, 6),
    }


def test_what_only_type_checkers_import_is_left_out() -> None:
    def function() -> int:
        if TYPE_CHECKING:
            import pandas as pd  # noqa: F401
        if typing.TYPE_CHECKING:
            import sklearn  # noqa: F401
        import docker  # noqa: F401

        return 1

    assert found_in(function) == {"docker"}


def test_globals_closures_defaults_and_nested_code_are_followed() -> None:
    version = Version("1")

    def helper() -> object:
        import redis

        return redis

    def function(default: object = version) -> object:
        class Inner:
            def method(self) -> object:
                import docker

                return docker

        return np.linalg.norm, helper, Inner, [__import__("structlog") for _ in range(1)], default

    assert found_in(function) == {
        "numpy",
        "numpy.linalg",
        "redis",
        "docker",
        "structlog",
        "packaging.version",
    }


def test_partials_lambdas_methods_and_cached_functions_are_followed() -> None:
    def inner() -> object:
        import redis

        return redis

    class Kind:
        def method(self) -> object:
            import docker

            return docker

    assert found_in(functools.partial(inner)) == {"redis"}
    assert found_in(lambda: inner) == {"redis"}
    assert found_in(Kind().method) == {"docker"}
    assert found_in(functools.lru_cache(inner)) == {"redis"}


def test_code_without_source_text_is_read_too() -> None:
    scope: dict[str, Any] = {}
    exec("def function():\n    import pandas.core\n    return pandas", scope)
    assert set(find_imports(scope["function"]).imports) == {"pandas.core"}


def test_a_module_of_ones_own_is_local_and_never_taken_for_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "utils.py").write_text("import pandas\ndef g(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def function() -> object:
        import utils  # type: ignore[import-not-found]

        return utils.g()

    found = find_imports(function, OWN_MODULE)
    assert found.local == {"utils"}
    assert not found.imports


def test_a_global_that_is_rebound_is_looked_at_again() -> None:
    scope: dict[str, Any] = {"thing": np, "__name__": "__main__"}
    exec("def function(): return thing", scope)
    scan = ImportScan(scope["function"], "")
    assert set(scan.findings().imports) == {"numpy"}
    assert scan.findings() is scan.findings()
    scope["thing"] = Version
    assert set(scan.findings().imports) == {"packaging.version"}


def test_scanning_imports_nothing() -> None:
    def function() -> None:
        import antigravity  # noqa: F401
        import this  # noqa: F401

        from uv import not_there  # noqa: F401

    import sys

    before = set(sys.modules)
    find_imports(function, OWN_MODULE)
    assert set(sys.modules) == before


def test_distributions_are_told_by_installed_metadata() -> None:
    owners = owning_distributions(
        ["sklearn.linear_model", "numpy", "dateutil.parser", "nowhere", "pandas.core.frame"]
    )
    assert owners == {
        "sklearn.linear_model": ("scikit-learn",),
        "numpy": ("numpy",),
        "dateutil.parser": ("python-dateutil",),
        "nowhere": (),
        "pandas.core.frame": ("pandas",),
    }
    assert installed_versions(["numpy.linalg"]) == {"numpy": np.__version__}


def test_parts_of_a_namespace_belong_to_different_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in (("ns-one", "one"), ("ns-two", "two")):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"common_ns/{module}/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert owning_distributions(["common_ns", "common_ns.one", "common_ns.two.deep"]) == {
        "common_ns": (),
        "common_ns.one": ("ns-one",),
        "common_ns.two.deep": ("ns-two",),
    }


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("cv2", "opencv-python"),
        ("PIL.Image", "pillow"),
        ("sklearn", "scikit-learn"),
        ("yaml", "pyyaml"),
        ("bs4", "beautifulsoup4"),
        ("git", "gitpython"),
        ("dateutil", "python-dateutil"),
        ("github", "pygithub"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("google.cloud.secretmanager", "google-cloud-secretmanager"),
        ("google.cloud", None),
        ("google", None),
        ("some_package.part", "some-package"),
    ],
)
def test_what_to_install_for_a_module_is_known_or_guessed(
    module: str, distribution: str | None
) -> None:
    assert likely_distribution(module) == distribution
