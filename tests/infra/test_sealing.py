"""Sealed secrets: opened by who has the key, for the token they were sealed for, and by nobody else."""

from pathlib import Path

import pytest

from readie_infra.errors import SealError, SettingsError
from readie_infra.sealing import Seal, read_seal

KEY, OTHER = bytes(32), bytes(31) + b"1"
VALUES = {"API_KEY": "s3cret", "EMPTY": ""}


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_what_was_sealed_comes_back_and_cannot_be_read() -> None:
    sealed = Seal(KEY).close(VALUES, "alice")
    assert "s3cret" not in sealed
    assert Seal(KEY).open(sealed, "alice") == VALUES
    assert Seal(KEY).close(VALUES, "alice") != sealed


@pytest.mark.parametrize(
    ("key", "token", "change"), [(OTHER, "alice", ""), (KEY, "bob", ""), (KEY, "alice", "A")]
)
def test_another_key_another_token_or_a_change_does_not_open_it(
    key: bytes, token: str, change: str
) -> None:
    sealed = Seal(KEY).close(VALUES, "alice")
    with pytest.raises(SealError):
        Seal(key).open(change + sealed, token)


def test_a_key_is_read_from_a_private_file(tmp_path: Path) -> None:
    sealed = read_seal(key_file(tmp_path, KEY.hex() + "\n")).close(VALUES, "alice")
    assert Seal(KEY).open(sealed, "alice") == VALUES


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("", 0o600, "holds 0 bytes"),
        ("no hex", 0o600, "holds no key"),
        (KEY.hex(), 0o644, "chmod 600"),
    ],
)
def test_a_bad_key_file_is_refused_with_the_remedy(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        read_seal(key_file(tmp_path, text, mode))


def test_a_key_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="openssl rand"):
        read_seal(tmp_path / "nowhere")
