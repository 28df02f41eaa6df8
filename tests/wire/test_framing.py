import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.framing import (
    BODY_TYPES,
    CHUNK_BYTES,
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    Decoder,
    FrameType,
    Message,
    MessageTooLargeError,
    ProtocolError,
    TruncatedMessageError,
    encode_frame,
    encode_header,
    encode_message,
)

GOLDEN = Path(__file__).parent / "golden"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(st.text(), json_values, max_size=4)
message_types = st.sampled_from([kind for kind in FrameType if kind is not FrameType.END])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(message_types)
    body = draw(st.binary(max_size=200)) if kind in BODY_TYPES else b""
    return Message(kind, draw(headers), body)


def encode(message: Message) -> bytes:
    body = message.body if message.type in BODY_TYPES else None
    return b"".join(encode_message(message.type, message.header, body))


@given(st.lists(messages(), max_size=5), st.integers(min_value=1, max_value=50))
def test_messages_survive_any_cut_of_the_stream(sent: list[Message], piece: int) -> None:
    stream = b"".join(encode(message) for message in sent)
    decoder = Decoder()
    received: list[Message] = []
    for start in range(0, len(stream), piece):
        received += decoder.feed(stream[start : start + piece])
    decoder.close()
    assert received == sent


@given(messages(), st.data())
def test_a_stream_that_stops_early_is_never_a_complete_message(
    message: Message, data: st.DataObject
) -> None:
    stream = encode(message)
    decoder = Decoder()
    cut = data.draw(st.integers(min_value=1, max_value=len(stream) - 1))
    assert decoder.feed(stream[:cut]) == []
    with pytest.raises(TruncatedMessageError):
        decoder.close()


def test_a_body_over_the_chunk_size_is_cut_and_joined() -> None:
    body = bytes(CHUNK_BYTES + 1)
    frames = list(encode_message(FrameType.RESULT, {}, body))
    assert [len(frame) - FRAME_HEADER.size for frame in frames] == [2, CHUNK_BYTES, 1, 0]
    assert Decoder().feed(b"".join(frames)) == [Message(FrameType.RESULT, {}, body)]


def test_a_body_can_be_taken_piece_by_piece_so_that_it_is_never_held() -> None:
    body = bytes(2 * CHUNK_BYTES + 5)
    taken: list[bytes] = []
    decoder = Decoder(on_body=taken.append)
    (message,) = decoder.feed(b"".join(encode_message(FrameType.CALL, {"v": 1}, body)))
    decoder.close()
    assert message == Message(FrameType.CALL, {"v": 1})
    assert [len(piece) for piece in taken] == [CHUNK_BYTES, CHUNK_BYTES, 5]


def test_an_announced_length_over_the_limit_is_refused_before_its_bytes_come() -> None:
    decoder = Decoder()
    with pytest.raises(MessageTooLargeError) as raised:
        decoder.feed(FRAME_HEADER.pack(FrameType.LOG, MAX_HEADER_BYTES + 1))
    assert raised.value.limit == MAX_HEADER_BYTES
    decoder = Decoder()
    decoder.feed(encode_header(FrameType.CALL, {}))
    with pytest.raises(MessageTooLargeError, match="CALL frame"):
        decoder.feed(FRAME_HEADER.pack(FrameType.CALL, MAX_FRAME_BYTES + 1))


def test_a_body_over_the_readers_limit_is_refused_at_the_frame_that_passes_it() -> None:
    frames = list(encode_message(FrameType.CALL, {}, b"x" * 11))
    with pytest.raises(MessageTooLargeError, match="CALL body has 11 bytes, the limit is 10"):
        Decoder(max_body=10).feed(b"".join(frames))


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (FRAME_HEADER.pack(99, 0), "unknown frame type 99"),
        (FRAME_HEADER.pack(FrameType.END, 1) + b"x", "END frame carries no payload"),
        (encode_frame(FrameType.END), "END frame outside a message"),
        (encode_frame(FrameType.LOG, b"{"), "LOG header is not JSON"),
        (encode_frame(FrameType.LOG, b"[" * 100_000), "LOG header is not JSON"),
        (encode_frame(FrameType.LOG, b"[]"), "LOG header is not a JSON object"),
        (
            encode_header(FrameType.CALL) + encode_header(FrameType.LOG),
            "LOG frame inside a CALL message",
        ),
    ],
)
def test_bytes_that_are_no_messages_are_refused(stream: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        Decoder().feed(stream)


def test_only_types_with_a_body_take_one() -> None:
    with pytest.raises(ProtocolError, match="LOG messages carry no body"):
        list(encode_message(FrameType.LOG, {}, b""))


def test_the_numbers_of_frame_types_are_fixed() -> None:
    names = [kind.name for kind in sorted(FrameType)]
    assert list(map(int, sorted(FrameType))) == list(range(15))
    assert names == [
        "END", "HELLO", "CALL", "READY", "GO", "STARTED", "ITEM", "CREDIT",
        "RESULT", "ERROR", "CANCEL", "PING", "BYE", "ACCEPTED", "LOG",
    ]  # fmt: skip


def golden_messages() -> dict[str, Message]:
    call = {"v": 1, "kind": "pickle", "function": "f", "call_id": "call-0"}
    return {
        "hello": Message(
            FrameType.HELLO,
            {"protocol": 3, "python": "3.11.7", "pid": 1, "checkpoint": None, "mode": "sandbox"},
        ),
        "call": Message(FrameType.CALL, call, b"\x80\x05."),
        "log": Message(FrameType.LOG, {"stream": "stdout", "text": "žluť\n", "seq": 2}),
        "result": Message(FrameType.RESULT, {"encoding": "pickle", "size": 3}, b"\x00\xff\n"),
        "go": Message(FrameType.GO, {}),
    }


@pytest.mark.parametrize("name", sorted(golden_messages()))
def test_todays_bytes_equal_the_committed_ones(name: str) -> None:
    message = golden_messages()[name]
    committed = (GOLDEN / f"{name}.bin").read_bytes()
    assert encode(message) == committed
    assert Decoder().feed(committed) == [message]


def test_every_golden_file_has_its_message() -> None:
    assert {path.stem for path in GOLDEN.glob("*.bin")} == set(golden_messages())


def test_random_bytes_never_raise_anything_but_a_protocol_error() -> None:
    for first, second in itertools.product(range(256), range(0, 256, 51)):
        decoder = Decoder()
        try:
            decoder.feed(bytes([first, second]) * 20)
        except ProtocolError:
            continue
