"""Values in messages: what is read from outside may be huge, and messages are kept and passed on."""

import reprlib

SHOWN = 80  # characters of a string

_short = reprlib.Repr()
_short.maxstring = _short.maxother = SHOWN


def brief(value: object) -> str:
    """As it is written in Python, cut where it is long."""
    return _short.repr(value)
