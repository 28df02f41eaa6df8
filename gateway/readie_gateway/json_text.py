"""JSON as callers and user code write it: exact integers, and text that UTF-8 does not know."""

import json
from typing import Any, NoReturn

import orjson


def dump(value: Any) -> bytes:
    """Compact UTF-8 JSON; escaped to ASCII where a string holds lone surrogates."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def parse(data: bytes) -> Any:
    """The value, integers of any length exact. Raises `ValueError`, also for NaN and Infinity."""
    try:
        return _DECODER.decode(data.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_json(data: bytes) -> bool:
    """Whether bytes from a sandbox are one JSON value, so that they can be put into a document."""
    try:
        orjson.loads(data)  # several times faster than `parse`, and right for nearly everything
    except orjson.JSONDecodeError:
        try:
            parse(data)
        except ValueError:
            return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # `json.loads` would make one a call
