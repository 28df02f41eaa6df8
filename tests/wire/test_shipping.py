"""Modules that travel as source."""

import importlib
import sys
from collections.abc import Iterator

import pytest

from readie_wire.shipping import ShippedModules, install

SOURCES = {
    "shipped": ("/home/me/shipped/__init__.py", True, b"from .part import VALUE\n"),
    "shipped.part": ("/home/me/shipped/part.py", False, "VALUE = 'é'\nWHERE = __file__\n".encode()),
    "spread": ("", True, None),
    "spread.mine": ("/home/me/spread/mine.py", False, b"OWN = True\n"),
    "broken": ("/home/me/broken.py", False, b"x = 1\n1 / 0\n"),
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(sys.modules)
    yield
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, ShippedModules)]
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_packages_modules_and_relative_imports_work_as_at_home() -> None:
    install(SOURCES)
    import shipped.part  # type: ignore[import-not-found]

    assert shipped.VALUE == "é"
    assert shipped.part.WHERE == "/home/me/shipped/part.py"
    assert shipped.__path__ == []
    with pytest.raises(ModuleNotFoundError):
        import shipped.absent  # type: ignore[import-not-found]


def test_a_namespace_is_completed_by_what_is_installed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path_factory.mktemp("installed")
    (installed / "spread").mkdir()
    (installed / "spread" / "theirs.py").write_text("OWN = False\n")
    monkeypatch.syspath_prepend(installed)
    install(SOURCES)
    from spread import mine, theirs  # type: ignore[import-not-found]

    assert (mine.OWN, theirs.OWN) == (True, False)


def test_a_module_of_that_name_that_is_loaded_already_is_let_go() -> None:
    stale = type(sys)("shipped")
    sys.modules["shipped"] = stale
    sys.modules["shipped.stale"] = type(sys)("shipped.stale")
    install(SOURCES)
    import shipped

    assert shipped is not stale
    assert "shipped.stale" not in sys.modules


def test_a_later_call_of_a_session_brings_its_own_sources() -> None:
    first = install(SOURCES)
    second = install({"shipped": ("/x.py", False, b"VALUE = 2\n")})
    import shipped

    assert shipped.VALUE == 2
    assert first not in sys.meta_path
    assert sys.meta_path[0] is second


def test_an_error_shows_the_line_of_the_source() -> None:
    import traceback

    install(SOURCES)
    with pytest.raises(ZeroDivisionError) as caught:
        import broken  # type: ignore[import-not-found]  # noqa: F401
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "/home/me/broken.py", line 2' in text
    assert "1 / 0" in text


def test_the_next_call_of_a_session_keeps_modules_whose_source_is_the_same() -> None:
    install(SOURCES)
    import shipped

    shipped.LEFT = "here"
    install({name: SOURCES[name] for name in ("shipped", "shipped.part")})
    assert sys.modules["shipped"] is shipped
    import spread.mine  # type: ignore[import-not-found]

    assert spread.mine.OWN  # of the call before


def test_a_changed_source_is_imported_anew_with_what_travels_beside_it() -> None:
    install(SOURCES)
    import shipped

    shipped.LEFT = "here"
    changed = {**SOURCES, "shipped.part": ("/home/me/shipped/part.py", False, b"VALUE = 2\n")}
    install(changed)
    again = importlib.import_module("shipped")
    assert again.VALUE == 2
    assert not hasattr(again, "LEFT")
