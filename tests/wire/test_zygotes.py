"""Control messages of zygotes survive any cut of the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.zygotes import MAX_LINE_BYTES, LineDecoder, StartRequest, encode_line

messages = st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3)


@given(st.lists(messages, max_size=4), st.integers(min_value=1, max_value=30))
def test_messages_survive_any_cut_of_the_stream(sent: list[dict[str, object]], piece: int) -> None:
    stream = b"".join(encode_line(message) for message in sent)
    decoder = LineDecoder()
    received = [
        message
        for start in range(0, len(stream), piece)
        for message in decoder.feed(stream[start : start + piece])
    ]
    assert received == sent


@given(st.text(), st.text(), st.booleans(), st.none() | st.integers(min_value=0))
def test_a_request_comes_back_as_it_went(
    sandbox: str, folder: str, fresh: bool, uid: int | None
) -> None:
    request = StartRequest(sandbox, folder, fresh, uid)
    [line] = LineDecoder().feed(encode_line(request.to_json()))
    assert StartRequest.from_json(line) == request


def test_a_line_without_an_end_is_refused() -> None:
    decoder = LineDecoder()
    with pytest.raises(ValueError, match="longer than"):
        decoder.feed(b"x" * (MAX_LINE_BYTES + 1))
