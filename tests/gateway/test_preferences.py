"""Headers that say how to answer, and the token file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from readie_gateway.auth import DEFAULT_TOKEN_ID, InvalidTokenFileError, read_tokens
from readie_gateway.errors import RefusedError
from readie_gateway.preferences import ANY_KIND, Preference, negotiate, read_preference
from readie_gateway.settings import GatewaySettings
from readie_wire.http import MEDIA_FRAMES, MEDIA_JSON, MEDIA_SSE


def request_with(**headers: str) -> Request:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw})


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("respond-async", Preference(True, 0.0)),
        ("wait=5", Preference(False, 5.0)),
        ('respond-async, wait="10"', Preference(True, 10.0)),
        ("Wait=1.5; note=x, handling=lenient", Preference(False, 1.5)),
        ("return=minimal", Preference(False, None)),
    ],
)
def test_prefer_is_read_as_rfc_7240_has_it(header: str, expected: Preference) -> None:
    assert read_preference(request_with(prefer=header)) == expected


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", MEDIA_JSON),
        ("text/event-stream", MEDIA_SSE),
        (f"{MEDIA_JSON};q=0.5, {MEDIA_FRAMES}", MEDIA_FRAMES),
        ("text/html, text/*;q=0.1", MEDIA_SSE),
        ("image/png, */*;q=0.1", MEDIA_JSON),
    ],
)
def test_accept_picks_the_best_that_is_offered(accept: str, media: str) -> None:
    assert negotiate(request_with(accept=accept), ANY_KIND) == media


@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_is_read_or_refused(text: str) -> None:
    request = request_with(accept=text, prefer=text)
    assert status_of(lambda: negotiate(request, ANY_KIND)) in (200, 406)
    assert status_of(lambda: read_preference(request)) in (200, 422)


def status_of(read: Callable[[], object]) -> int:
    try:
        read()
    except RefusedError as refusal:
        return refusal.status
    return 200


def test_a_token_file_has_a_secret_or_an_id_and_a_secret_a_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("# tokens\n\nsecret-number-one-1\nci:secret-number-two-2\n")
    tokens = read_tokens(path)
    assert tokens.identify("secret-number-one-1") == DEFAULT_TOKEN_ID
    assert tokens.identify("secret-number-two-2") == "ci"
    assert tokens.identify("ci:secret-number-two-2") is None


@pytest.mark.parametrize(
    ("text", "says"), [("", "no token"), ("short\n", ":1:"), ("a b:0123456789abcdef\n", "token id")]
)
def test_a_token_file_without_a_usable_token_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ValueError, match=says) as refusal:
        read_tokens(path)
    assert isinstance(refusal.value, InvalidTokenFileError)


@pytest.mark.parametrize(
    ("host", "exposed"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("box", True)],
)
def test_a_gateway_beyond_loopback_is_exposed(host: str, exposed: bool) -> None:
    assert GatewaySettings(host=host, token_file=Path("t")).exposed is exposed
