import random
import string

from hypothesis import given
from hypothesis import strategies as st

from readie_worker.output import PIECE_BYTES, Output, Piece, Stream


def text_of(pieces: list[Piece], stream: Stream = "stdout") -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)


@given(st.text(), st.integers(1, 7))
def test_text_cut_anywhere_comes_out_whole(text: str, step: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    output = Output()
    for start in range(0, len(data), step):
        output.feed("stdout", data[start : start + step])
    assert text_of(output.finish()) == data.decode("utf-8", "backslashreplace")


@given(st.binary(max_size=200))
def test_bytes_that_are_not_utf_8_are_shown_and_never_raise(data: bytes) -> None:
    output = Output()
    output.feed("stderr", data)
    text_of(output.finish(), "stderr").encode("utf-8")


def test_streams_keep_their_order_and_their_tags() -> None:
    output = Output()
    for stream, data in (("stdout", b"a"), ("stderr", b"b"), ("stdout", b"c"), ("stdout", b"d")):
        output.feed(stream, data)  # type: ignore[arg-type]
    assert output.finish() == [Piece("stdout", "a"), Piece("stderr", "b"), Piece("stdout", "cd")]


def test_a_character_split_between_two_reads_of_interleaved_streams_is_repaired() -> None:
    euro = "€".encode()
    output = Output()
    output.feed("stdout", euro[:2])
    output.feed("stderr", euro[:1])
    output.feed("stdout", euro[2:])
    output.feed("stderr", euro[1:])
    assert output.finish() == [Piece("stdout", "€"), Piece("stderr", "€")]


def test_what_is_over_the_cap_is_left_out_in_the_middle_behind_a_marker() -> None:
    output = Output(head_bytes=100, tail_bytes=50)
    lines = "".join(f"line {number:04}\n" for number in range(1000))
    output.feed("stdout", lines.encode())
    live = output.take()
    assert text_of(live) == lines[:100]
    marker, *tail = output.finish()
    assert marker.gap == len(lines) - 150
    assert str(marker.gap) in marker.text
    assert text_of(tail) == lines[-50:]


def test_output_up_to_the_cap_has_no_gap() -> None:
    output = Output(head_bytes=100, tail_bytes=50)
    output.feed("stdout", b"x" * 150)
    pieces = output.finish()
    assert text_of(pieces) == "x" * 150
    assert not any(piece.gap for piece in pieces)


def test_a_tail_that_begins_inside_a_character_begins_with_the_next_one() -> None:
    output = Output(head_bytes=4, tail_bytes=10)
    output.feed("stdout", ("€" * 100).encode())
    *_, tail = output.finish()
    assert set(tail.text) == {"€"}


def test_a_head_that_ends_inside_a_character_goes_on_in_a_tail_without_a_gap() -> None:
    output = Output(head_bytes=4, tail_bytes=10)
    output.feed("stdout", "€€€".encode())
    assert text_of(output.finish()) == "€€€"


def test_memory_stays_flat_whatever_is_printed() -> None:
    output = Output(head_bytes=1000, tail_bytes=1000)
    noise = random.Random(1)
    for _ in range(20_000):
        stream: Stream = noise.choice(["stdout", "stderr"])
        output.feed(stream, noise.choice(string.ascii_letters).encode())
    pieces = output.finish()
    assert sum(len(piece.text) for piece in pieces) < 2_200
    assert sum(piece.gap for piece in pieces) == 18_000


def test_no_piece_is_larger_than_an_event_should_be() -> None:
    output = Output()
    output.feed("stdout", b"x" * (10 * PIECE_BYTES))
    assert max(len(piece.text) for piece in output.finish()) <= PIECE_BYTES


def test_the_last_lines_are_those_before_the_end_of_both_streams() -> None:
    output = Output(head_bytes=10, tail_bytes=10)
    output.feed("stdout", b"first\n" * 5000)
    output.feed("stderr", b"last words")
    assert output.last_lines()[-2:] == ["first", "last words"]
    assert len(output.last_lines(3)) == 3
