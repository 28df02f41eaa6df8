"""Real parts that a test needs: a skip on a laptop, a failure in CI, and a record of which took part."""

import os

import pytest

_taken_part: dict[str, str] = {}


def require_part(name: str, present: str | bool | None, how_to_get: str) -> None:
    """Go on only when the real part is there.

    `present` is its version, or a plain truth value; `how_to_get` completes the sentence
    "get it with …". Raises pytest's skip, or its failure when the environment says CI=true: there
    a missing part means that the machine was set up wrongly, never that the test may rest.
    """
    if present:
        _taken_part[name] = present if isinstance(present, str) else ""
        return
    message = f"{name} is not on this machine; get it with {how_to_get}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def closing_line() -> str:
    """The line that ends a test run: which real parts took part, with their versions."""
    parts = [f"{name} {version}".strip() for name, version in sorted(_taken_part.items())]
    return f"real parts: {', '.join(parts) or 'none'}"
