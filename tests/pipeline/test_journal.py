"""What a run has done so far, on disk: whatever became of the file, the next run goes on."""

from pathlib import Path

import pytest

from readie_pipeline.errors import OutputError
from readie_pipeline.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "below/run.journal", "numbers")
    for number in range(3):
        journal.add(str(number), {"value": number})
    return tmp_path / "below/run.journal"


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'["3",{"val',
        b"\0" * 4096,
        b'\xff\xfe\n["3",{"value":3}]\n',
        b'"a line that is no pair"\n',
        b'["3",\n["4",{"value":4}]\n',
    ],
)
def test_what_is_whole_before_the_damage_counts(path: Path, damage: bytes) -> None:
    with path.open("ab") as file:
        file.write(damage)
    known = {str(number): {"value": number} for number in range(3)}
    journal = Journal(path, "numbers")
    assert journal.known == known
    journal.add("new", 1)
    assert Journal(path, "numbers").known == known | {"new": 1}


def test_of_two_answers_the_later_counts(path: Path) -> None:
    Journal(path, "numbers").add("0", "again")
    assert Journal(path, "numbers").known["0"] == "again"


@pytest.mark.parametrize("text", [None, "", "\0\0", '"something else"\n["0",0]\n'])
def test_a_journal_of_something_else_is_begun_anew(path: Path, text: str | None) -> None:
    if text is not None:
        path.write_text(text)
    journal = Journal(path, "numbers" if text is not None else "letters")
    assert journal.known == {}
    journal.add("a", 1)
    assert journal.known == {"a": 1}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        Journal(tmp_path / "file/run.journal", "numbers")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_and_keeps_what_is_there(path: Path) -> None:
    journal = Journal(path, "numbers")
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left on device; what is in it is kept"):
        journal.add("4", 4)
    assert "4" not in journal.known
