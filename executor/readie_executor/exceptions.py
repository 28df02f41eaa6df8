"""Describes what a function raised, and sends the object itself only where it survives the trip."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from readie_wire.outcome import ErrorInfo, ErrorKind

MAX_CHAIN = 16  # causes described behind one error
MAX_MEMBERS = 32  # described of one exception group
MAX_ERRORS = 64  # described in all, so that nested groups stay far below the header limit
MAX_MESSAGE = 16 << 10  # characters
MAX_TRACEBACK = 32 << 10  # characters; the middle of a longer one is cut
MAX_ATTRIBUTES = 32
MAX_ATTRIBUTE = 500  # characters of one attribute's repr
MAX_TOTAL = (
    256 << 10
)  # characters of everything: a header is 4 MiB, an escaped character up to 12 bytes
MAX_PICKLED = 16 << 20  # bytes; a larger exception object is only described

_OWN_FOLDER = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - pathlib would be loaded for this


def describe(error: BaseException) -> ErrorInfo:
    """The error with its causes, notes and group members; never raises, never unbounded."""
    return _Describer().info(error)


def pickled(error: BaseException, dumps: Callable[[Any], bytes]) -> bytes:
    """The exception's bytes if loading them here gives an equal exception, else nothing.

    Only `Exception` objects: a remote `KeyboardInterrupt` must not pass for one of the caller's.
    """
    if not isinstance(error, Exception):
        return b""
    import pickle  # loaded already by whoever called with a pickle

    try:
        data = dumps(error)
        copy = pickle.loads(data)
        same = type(copy) is type(error) and _text(copy) == _text(error)
    except BaseException:  # `__reduce__` and `__init__` are the caller's code
        return b""
    return data if same and len(data) <= MAX_PICKLED else b""


def clean(text: str, limit: int) -> str:
    """Text that every UTF-8 encoder takes, about ``limit`` characters of it, both ends kept."""
    if len(text) > limit:
        half = limit // 2
        cut = len(text) - 2 * half
        text = f"{text[:half]}\n… {cut} characters left out …\n{text[half + cut :]}" if half else ""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Describer:
    """Walks one error's relatives; knows how much it may still say, and which it has seen."""

    def __init__(self) -> None:
        self._left = MAX_ERRORS
        self._characters = MAX_TOTAL
        self._seen: set[int] = set()

    def info(self, error: BaseException, depth: int = 0) -> ErrorInfo:
        self._seen.add(id(error))
        self._left -= 1
        cause, is_context = _predecessor(error)
        follow = cause is not None and depth < MAX_CHAIN and self._may_describe(cause)
        return ErrorInfo(
            kind=ErrorKind.EXIT if isinstance(error, SystemExit) else ErrorKind.EXCEPTION,
            type=type_name(error),
            message=self._clean(_text(error), MAX_MESSAGE),
            traceback=self._clean(_traceback_text(error), MAX_TRACEBACK),
            notes=tuple(self._clean(note, MAX_MESSAGE) for note in _notes(error)),
            details=self._details(error),
            cause=self.info(cause, depth + 1) if cause is not None and follow else None,
            context=is_context and follow,
            members=tuple(self._members(error, depth)),
        )

    def _clean(self, text: str, limit: int) -> str:
        cleaned = clean(text, max(0, min(limit, self._characters)))
        self._characters -= len(cleaned)
        return cleaned

    def _details(self, error: BaseException) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if isinstance(error, SystemExit):
            details["exit_code"] = exit_code(error)
        attributes = {
            self._clean(name, MAX_ATTRIBUTE): self._clean(value, MAX_ATTRIBUTE)
            for name, value in _attributes(error)
        }
        if attributes:
            details["attributes"] = attributes
        return details

    def _may_describe(self, error: BaseException) -> bool:
        return self._left > 0 and id(error) not in self._seen

    def _members(self, error: BaseException, depth: int) -> Iterator[ErrorInfo]:
        if not isinstance(error, BaseExceptionGroup) or depth >= MAX_CHAIN:
            return
        for member in error.exceptions[:MAX_MEMBERS]:
            if self._may_describe(member):
                yield self.info(member, depth + 1)


def type_name(error: BaseException) -> str:
    """``"ValueError"`` for a built-in, else ``"package.module.Name"``."""
    kind = type(error)
    module = getattr(kind, "__module__", "")
    name = clean(str(kind.__qualname__), 200)
    return name if module in ("builtins", "__main__", None) else f"{module}.{name}"


def _predecessor(error: BaseException) -> tuple[BaseException | None, bool]:
    if error.__cause__ is not None:
        return error.__cause__, False
    if error.__context__ is not None and not error.__suppress_context__:
        return error.__context__, True
    return None, False


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # `__str__` is the caller's code
        return f"<no message: its __str__ raised {type(problem).__name__}>"


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, list | tuple):
        return []
    return [note for note in notes[:MAX_MEMBERS] if isinstance(note, str)]


def _attributes(error: BaseException) -> Iterator[tuple[str, str]]:
    for name, value in list(getattr(error, "__dict__", {}).items())[:MAX_ATTRIBUTES]:
        if name != "__notes__":
            with contextlib.suppress(Exception):  # an attribute whose repr fails is left out
                yield str(name), repr(value)


def exit_code(error: SystemExit) -> int:
    """What the interpreter would exit with: text means 1, nothing means 0."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _traceback_text(error: BaseException) -> str:
    """This error's own frames and last lines; its causes are described by themselves."""
    try:
        lines = traceback.format_exception(
            type(error), error, _without_own_frames(error.__traceback__), chain=False
        )
        return "".join(lines)
    except BaseException:  # source lines, reprs and `__str__` come from anywhere
        return f"{type_name(error)}: {_text(error)}\n"


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that lead from the executor to the function."""
    leading = (_OWN_FOLDER, "<frozen importlib", *_folders("cloudpickle", "asyncio", "importlib"))
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(leading):
        trace = trace.tb_next
    return trace


def _folders(*packages: str) -> Iterator[str]:
    """Where the packages live through which the executor may call the function."""
    for name in packages:
        if package := sys.modules.get(name):
            yield from package.__path__
