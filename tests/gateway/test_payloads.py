"""Payloads while they arrive: memory up to the inline limit, a file above it, gone at the end."""

import resource
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_gateway.errors import NoSpaceError
from readie_gateway.payloads import Payload
from readie_wire.http import INLINE_LIMIT_BYTES


@given(st.lists(st.integers(min_value=0, max_value=INLINE_LIMIT_BYTES), max_size=5))
def test_every_byte_is_kept_in_order_wherever_it_is(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    with Payload() as payload:
        for piece in pieces:
            payload.write(piece)
        whole = b"".join(pieces)
        path = payload.path
        assert payload.size == len(whole)
        assert (path is None) == (len(whole) <= INLINE_LIMIT_BYTES)
        assert (payload.data if path is None else path.read_bytes()) == whole
    assert path is None or not path.exists()


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files of this process cannot grow over this many bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = INLINE_LIMIT_BYTES * 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_full_is_a_refusal(small_files: int) -> None:
    with Payload() as payload, pytest.raises(NoSpaceError, match="no room"):
        kept_in_a_file(payload, bytes(small_files + 1))


def kept_in_a_file(payload: Payload, data: bytes) -> None:
    payload.write(data)  # may still be in a buffer
    assert payload.path is not None
