"""What an operator sees where there is no terminal, and what a terminal must not take for orders."""

import pytest

from readie_pipeline import console
from readie_pipeline.console import Terminal, shown


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("caf\u00e9 \U0001f4a9\n\tnext", "caf\u00e9 \U0001f4a9\n\tnext"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("bad\udcff.ipynb", "bad\\udcff.ipynb"),
        ("one\rtwo", "one\\rtwo"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, seen: str) -> None:
    assert shown(text) == seen


def test_names_of_files_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    for write in (terminal.say, terminal.note, terminal.warn):
        write("\x1b]0;title\x07 [bold]")
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.rstrip() == "\\x1b]0;title\\x07 [bold]"


def test_a_log_tells_how_far_it_is_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_EVERY_S", 0.0)
    assert list(Terminal().track(["a", "b", "c"], "importing")) == ["a", "b", "c"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "importing: 1 of 3 done, about 0 s left" in err
