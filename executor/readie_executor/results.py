"""Turns a function's value into bytes within a limit, and says which part of it would not go."""

import functools
import json
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from readie_executor.exceptions import clean
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind
from readie_wire.reducing import reduce_cached_property

MAX_PROBES = 500  # parts of a value tried one by one to find the culprit
MAX_DEPTH = 8
MAX_REASON = 2_000  # characters


class ResultRefusedError(Exception):
    """The value cannot be sent; ``info`` is what the caller is told."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


def encode(value: Any, encoding: Encoding, limit: int) -> bytes:
    """The bytes of a result. Raises `ResultRefusedError`; ``limit`` is in bytes."""
    dumps = dump_json if encoding is Encoding.JSON else dump_pickle
    try:
        data = dumps(value, limit)
    except _TooLargeError as error:
        raise ResultRefusedError(_too_large(error.size, limit)) from None
    except Exception as error:  # reducers are the caller's code and raise anything
        raise ResultRefusedError(_not_serializable(value, encoding, dumps, error)) from error
    return data


def dump_pickle(value: Any, limit: int) -> bytes:
    """cloudpickle, but an open file is refused and not silently read to its end."""
    sink = _Sink(limit)
    _pickler_type()(sink, protocol=5).dump(value)
    return sink.take()


def dump_json(value: Any, limit: int) -> bytes:
    """Strict JSON in ASCII: no NaN, lone surrogates spelled out, numpy values as plain ones."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        spelled = re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text)
        data = spelled.encode("utf-8")
    if len(data) > limit:
        raise _TooLargeError(len(data))
    return data


class _TooLargeError(Exception):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class _Sink:
    """A pickler's file that keeps bytes up to the limit and only counts those beyond."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._parts: list[bytes] = []

    def write(self, data: bytes | memoryview) -> int:
        length = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        self._size += length
        if self._size <= self._limit:
            self._parts.append(bytes(data))
        else:
            self._parts.clear()
        return length

    def take(self) -> bytes:
        if self._size > self._limit:
            raise _TooLargeError(self._size)
        return b"".join(self._parts)


def _pickler_type() -> Any:
    import io

    import cloudpickle  # loaded already: the call came as a pickle

    def refuse_file(file: Any) -> Any:
        if file in (sys.stdout, sys.stderr):
            return cloudpickle.Pickler._dispatch_table[io.TextIOWrapper](file)
        raise TypeError("an open file belongs to the sandbox and cannot be sent")

    own = {io.TextIOWrapper: refuse_file, functools.cached_property: reduce_cached_property}
    table = ChainMap(own, cloudpickle.Pickler.dispatch_table)
    return type("ResultPickler", (cloudpickle.Pickler,), {"dispatch_table": table})


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays as Python's; nothing else is converted behind the user's back."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _too_large(size: int, limit: int) -> ErrorInfo:
    return ErrorInfo(
        kind=ErrorKind.RESULT_TOO_LARGE,
        type="ResultTooLargeError",
        message=f"the result has {size} bytes, the limit is {limit}; return less, "
        "or write it to storage and return where it is",
        details={"size": size, "limit": limit},
    )


def _not_serializable(
    value: Any, encoding: Encoding, dumps: Callable[[Any, int], bytes], error: Exception
) -> ErrorInfo:
    path, culprit = _locate(value, dumps)
    found = _qualified(culprit)
    name = "JSON" if encoding is Encoding.JSON else "pickle"
    reason = clean(f"{type(error).__name__}: {error}", MAX_REASON)
    return ErrorInfo(
        kind=ErrorKind.RESULT_NOT_SERIALIZABLE,
        type="ResultNotSerializableError",
        message=f"{path} is a {found}, which {name} cannot carry ({reason})",
        details={"path": path, "type": found},
    )


def _locate(value: Any, dumps: Callable[[Any, int], bytes]) -> tuple[str, Any]:
    """The smallest part of the value that cannot be encoded by itself, and the way to it."""
    path, probes = "result", 0
    for _ in range(MAX_DEPTH):
        for step, part in _parts(value):
            probes += 1
            if probes > MAX_PROBES:
                return path, value
            if not _goes(part, dumps):
                path, value = path + step, part
                break
        else:
            return path, value
    return path, value


def _goes(part: Any, dumps: Callable[[Any, int], bytes]) -> bool:
    try:
        dumps(part, 0)
    except _TooLargeError:
        return True
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"[{_short(key)}]", part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif isinstance(value, set | frozenset):
        for part in value:
            yield f"{{{_short(part)}}}", part
    elif isinstance(attributes := getattr(value, "__dict__", None), dict):
        for name, part in attributes.items():
            yield f".{name}", part


def _short(value: Any) -> str:
    try:
        return clean(repr(value), 80)
    except Exception:
        return f"<{type(value).__name__}>"


def _qualified(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
