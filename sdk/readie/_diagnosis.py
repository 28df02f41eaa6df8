"""Finds what in a call cannot be pickled, or makes it large, and says where it hangs.

Walks from the function and the arguments down to the smallest part that still fails. Used only
after a failure, so it may be slow, within bounds.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType

MAX_DEPTH = 30
MAX_PARTS = 2_000  # of one object, such as the elements of a list
SHOWN_DEPTH = 3  # of a path that leads deeper than that: the rest of it tells nothing
SEARCH_S = 5.0  # an answer without the last step beats one that comes late

# By the name of the culprit's type, or of a base of it.
_HINTS = {
    "_thread.lock": "create the lock inside the function",
    "_thread.RLock": "create the lock inside the function",
    "_thread._local": "create the thread-local inside the function",
    "generator": "pass a list instead of a generator",
    "async_generator": "pass a list instead of a generator",
    "coroutine": "await it first and pass its result",
    "_io._IOBase": "open the file inside the function, or pass its content",
    "_io.TextIOWrapper": "open the file inside the function, or pass its content",
    "socket.socket": "connect inside the function",
    "sqlite3.Connection": "connect inside the function",
    "asyncio.locks.Lock": "create it inside the function",
    "multiprocessing.context.BaseContext": "create it inside the function",
    "_contextvars.ContextVar": "set it inside the function",
    "frame": "do not keep frames or tracebacks in what the function uses",
    "traceback": "do not keep frames or tracebacks in what the function uses",
}
# What leads further into these is no concern of the caller's.
_WHOLE = {
    "readie.Call": "pass its result, call.get(), or its id for Client().call(id)",
    "readie.Client": "make the client inside the function",
    "readie.Session": "bind the function to the session: f.bind(session=…)",
}
_TOO_DEEP = (
    "Hint: it is nested deeper than pickle can follow; pass it flat, as a list of its parts."
)


@dataclass(frozen=True, slots=True)
class Culprit:
    """``path`` leads to it, root first; ``type_name`` is qualified."""

    path: tuple[str, ...]
    type_name: str
    hint: str

    def __str__(self) -> str:
        return f"cannot be sent: {' → '.join(self.path)} : {self.type_name}. {self.hint}"


def find_culprit(roots: Mapping[str, object], travels: Callable[[object], bool]) -> Culprit | None:
    """The deepest part of one of ``roots`` that does not travel while all its own parts do."""
    deadline = time.monotonic() + SEARCH_S
    for label, root in roots.items():
        if travels(root):
            continue
        path, value, seen = [label], root, {id(root)}
        while len(path) < MAX_DEPTH and _type_name(type(value)) not in _WHOLE:
            step = _failing_part(value, travels, seen, deadline)
            if step is None:
                break
            labels, value = step
            path += labels
            seen.add(id(value))
        if len(path) >= MAX_DEPTH:
            return Culprit((*path[:SHOWN_DEPTH], "…"), _type_name(type(value)), _TOO_DEEP)
        return Culprit(tuple(path), _type_name(type(value)), _hint(value))
    return None


def size_tree(roots: Mapping[str, object], measure: Callable[[object], int | None]) -> str:
    """The largest parts, two levels deep, one a line: ``argument 1: 812.0 MB (numpy.ndarray)``."""
    lines = []
    for label, root, size in _largest(((label,), root) for label, root in roots.items())(measure):
        lines.append(f"  {_sized(label, root, size)}")
        for inner, part, part_size in _largest(_parts(root))(measure):
            if part_size * 10 >= size:
                lines.append(f"    {_sized(inner, part, part_size)}")
    return "\n".join(lines)


def _largest(
    parts: "Iterator[tuple[tuple[str, ...], object]]",
) -> Callable[[Callable[[object], int | None]], list[tuple[str, object, int]]]:
    def measured(measure: Callable[[object], int | None]) -> list[tuple[str, object, int]]:
        sizes = [(" → ".join(labels), part, measure(part) or 0) for labels, part in parts]
        return sorted(sizes, key=lambda each: -each[2])[:5]

    return measured


def _sized(label: str, value: object, size: int) -> str:
    return f"{label}: {size / 1e6:.1f} MB ({_type_name(type(value))})"


def _failing_part(
    value: object,
    travels: Callable[[object], bool],
    seen: set[int],
    deadline: float,
) -> tuple[tuple[str, ...], object] | None:
    its_class = (("class",), type(value))  # travels too, where it is the caller's own
    for count, (labels, part) in enumerate(itertools.chain(_parts(value), [its_class])):
        if count >= MAX_PARTS or time.monotonic() > deadline:
            return None
        if id(part) not in seen and not travels(part):
            return labels, part
    return None


def _parts(value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    """What ``value`` is made of, with the words that lead to each part."""
    match value:
        case FunctionType():
            yield from _function_parts(value)
        case MethodType():
            yield ("self",), value.__self__
            yield ("function",), value.__func__
        case functools.partial():
            yield ("partial",), value.func
            for number, each in enumerate(value.args, 1):
                yield ("partial", f"argument {number}"), each
            for name, each in value.keywords.items():
                yield ("partial", f"argument {name}"), each
        case Mapping():
            for key, each in value.items():
                yield (f"[{key!r:.40}]",), each
                yield (f"key {key!r:.40}",), key
        case list() | tuple():
            for number, each in enumerate(value):
                yield (f"[{number}]",), each
        case set() | frozenset():
            for each in value:
                yield (f"{{{each!r:.40}}}",), each
        case type():
            for name, each in vars(value).items():
                yield (f"class attribute {name}",), each
        case _:
            yield from _instance_parts(value)


def _function_parts(function: FunctionType) -> Iterator[tuple[tuple[str, ...], object]]:
    names = _names(function)
    for name in sorted(names & function.__globals__.keys()):
        yield ("globals", name), function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield ("closure", name), cell.cell_contents
        except ValueError:
            continue
    for number, each in enumerate(function.__defaults__ or (), 1):
        yield ("defaults", str(number)), each
    for name, each in (function.__kwdefaults__ or {}).items():
        yield ("defaults", name), each
    for name, each in vars(function).items():
        yield ("attribute", name), each


def _names(function: FunctionType) -> set[str]:
    names: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting += [each for each in code.co_consts if isinstance(each, type(code))]
    return names


def _instance_parts(value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:
        yield ("wrapped",), wrapped
    for name, each in getattr(value, "__dict__", {}).items():
        yield (f".{name}",), each
    for owner in type(value).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield (f".{name}",), getattr(value, name)


def _type_name(kind: type) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _hint(value: object) -> str:
    for kind in type(value).__mro__:
        if hint := _HINTS.get(_type_name(kind)) or _WHOLE.get(_type_name(kind)):
            return f"Hint: {hint}."
    return "Hint: create it inside the function, or pass what it is made from."
