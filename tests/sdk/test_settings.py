"""Where the service is found, in which order."""

import json
from pathlib import Path
from typing import Any

import pytest

import readie
from readie._settings import Address, data_folder, resolve


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("READIE_URL", "READIE_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("READIE_DATA_DIR", str(tmp_path))
    return tmp_path


def leave_note(folder: Path) -> None:
    (folder / "token").write_text("found\n")
    note = {"url": "http://127.0.0.1:1234", "token_file": str(folder / "token")}
    (folder / "service.json").write_text(json.dumps(note))


def test_arguments_come_before_the_environment_and_that_before_discovery(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_note(folder)
    assert resolve() == Address("http://127.0.0.1:1234", "found")
    monkeypatch.setenv("READIE_URL", "https://readie.example/base/")
    assert resolve() == Address("https://readie.example/base", "")
    monkeypatch.setenv("READIE_AUTH_TOKEN", "of the environment")
    assert resolve() == Address("https://readie.example/base", "of the environment")
    assert resolve("http://there:1", "given") == Address("http://there:1", "given")


def test_a_token_of_the_environment_goes_to_the_service_that_was_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_note(folder)
    monkeypatch.setenv("READIE_AUTH_TOKEN", "other")
    assert resolve().auth_token == "other"


def test_the_token_of_a_note_is_the_first_one_of_its_file(folder: Path) -> None:
    leave_note(folder)
    (folder / "token").write_text("# of the whole team\n\nteam:found-behind-a-name\nother\n")
    assert resolve().auth_token == "found-behind-a-name"


def test_without_any_service_the_error_says_how_to_get_one() -> None:
    with pytest.raises(readie.ConfigurationError, match="readie up"):
        resolve()


def test_a_note_that_cannot_be_used_is_told_by_its_path(folder: Path) -> None:
    for text in ("{", "[]", "{}", '{"url": "http://x", "token_file": "/proc/self/mem"}'):
        (folder / "service.json").write_text(text)
        with pytest.raises(readie.ConfigurationError, match=r"service\.json"):
            resolve()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8777", "ftp://x", "http://", "x", "http://x:99999", "http://x:abc", 5]
)
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(readie.ConfigurationError, match="must look like http"):
        readie.Client(url)


def test_a_token_is_taken_without_its_line_end_and_refused_with_others_in_it() -> None:
    assert resolve("http://there:1", "given\r\n").auth_token == "given"
    for token in ("two\nlines", "ž", "nul\0"):
        with pytest.raises(readie.ConfigurationError, match="which file has the token"):
            resolve("http://there:1", token)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Address("http://x", "secret"))
    assert "secret" not in repr(readie.Client("http://x", "secret"))


def test_the_data_folder_is_the_platforms_without_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("READIE_DATA_DIR")
    assert data_folder().name == "readie"
