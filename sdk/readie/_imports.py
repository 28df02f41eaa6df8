"""Which modules a function imports or refers to, read from its code objects without running it.

Works without source text: notebooks, ``exec`` and lambdas included. Followed are nested functions,
closures and those globals that travel by value; what is referred to in installed modules is theirs.
"""

import builtins
import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from readie._bytecode import ImportedName, Reference, Unknown, read_code
from readie._locality import Origin, locate
from readie_wire.extracting import How, Sighting

MAX_CODES = 5_000  # code objects followed for one function


@dataclass(slots=True)
class Findings:
    """``imports``: modules of installed or missing packages, with where each was seen first.

    ``local``: the caller's own modules. ``dynamic``: names of functions that import something whose
    name is computed.
    """

    imports: dict[str, Sighting] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    dynamic: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Search:
    by_value: str  # the module that travels like a script does, besides __main__
    findings: Findings = field(default_factory=Findings)
    seen: set[int] = field(default_factory=set)
    keep: list[object] = field(default_factory=list)  # ids in `seen` must stay taken
    codes: int = 0
    watched: list[tuple[dict[str, Any], str, object]] = field(default_factory=list)
    function: str = ""  # that refers to what is looked at
    line: int = 0

    def note(self, name: str) -> None:
        seen = Sighting(name, How.GLOBAL, self.function, self.line)
        note_module(self.findings, seen, self.by_value)


_MISSING = object()


class ImportScan:
    """The findings of one function, computed again when a global that it uses was rebound."""

    def __init__(self, function: Callable[..., Any], by_value: str) -> None:
        self._function = function
        self._by_value = by_value
        self._search: _Search | None = None

    def findings(self) -> Findings:
        search = self._search
        if search is None or any(
            scope.get(name, _MISSING) is not value for scope, name, value in search.watched
        ):
            search = _Search(self._by_value)
            _follow(search, self._function)
            self._search = search
        return search.findings


def find_imports(function: Callable[..., Any], by_value: str = "") -> Findings:
    """The findings of ``function``. ``by_value`` names a local module that travels by value."""
    return ImportScan(function, by_value).findings()


def note_module(findings: Findings, seen: Sighting, by_value: str = "") -> None:
    """File a module under local or imports, or nowhere when every Python has it."""
    if seen.name == by_value:
        return
    match locate(seen.name).origin:
        case Origin.LOCAL:
            findings.local.add(seen.name)
        case Origin.INSTALLED | Origin.MISSING:
            findings.imports.setdefault(seen.name, seen)


def _follow(search: _Search, root: object) -> None:
    waiting: list[tuple[object, str, int]] = [(root, "", 0)]
    while waiting:
        value, search.function, search.line = waiting.pop()
        if id(value) in search.seen:
            continue
        search.seen.add(id(value))
        search.keep.append(value)
        waiting.extend((part, search.function, search.line) for part in _parts(search, value))


def _parts(search: _Search, value: object) -> Iterator[object]:
    """Note what ``value`` is of, and give the values that travel with it."""
    match value:
        case ModuleType():
            search.note(value.__name__)
        case FunctionType():
            if _travels(search, value.__module__):
                yield from _parts_of_function(search, value)
            else:
                search.note(value.__module__ or "")
        case MethodType():
            yield from (value.__func__, value.__self__)
        case functools.partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case staticmethod() | classmethod():
            yield value.__func__
        case property():
            yield from (part for part in (value.fget, value.fset, value.fdel) if part)
        case type():
            yield from _parts_of_class(search, value)
        case list() | tuple() | set() | frozenset() if len(value) <= 100:
            yield from value
        case dict() if len(value) <= 100:
            yield from value.values()
        case _:
            wrapped = getattr(value, "__wrapped__", None)
            if isinstance(wrapped, FunctionType):
                yield wrapped
            elif isinstance(value, BuiltinFunctionType) and isinstance(value.__module__, str):
                search.note(value.__module__)
            elif type(value).__module__ != "builtins":
                yield type(value)


def _travels(search: _Search, module: str | None) -> bool:
    """Whether functions and classes of ``module`` are pickled by value."""
    return not module or module == search.by_value or locate(module).origin is Origin.MAIN


def _parts_of_class(search: _Search, value: type) -> Iterator[object]:
    if not _travels(search, value.__module__):
        if value.__module__ != "builtins":
            search.note(value.__module__)
        return
    yield from value.__bases__
    yield from vars(value).values()


def _parts_of_function(search: _Search, function: FunctionType) -> Iterator[object]:
    code = function.__code__
    search.function, search.line = code.co_qualname, code.co_firstlineno
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            search.watched.append(({}, name, _MISSING))
    yield from _parts_of_code(search, code, function)


def _parts_of_code(search: _Search, code: CodeType, function: FunctionType) -> Iterator[object]:
    search.codes += 1
    if search.codes > MAX_CODES:
        return
    scope = function.__globals__
    for found in read_code(code, _resolver(scope, function)):
        match found:
            case ImportedName():
                _note_import(search, found, scope, code.co_qualname)
            case Reference(name=name, path=path, line=line):
                search.function, search.line = code.co_qualname, line
                value = scope.get(name, _MISSING)
                search.watched.append((scope, name, value))
                if value is not _MISSING:
                    yield from _along(value, path)
            case Unknown():
                search.findings.dynamic.add(code.co_qualname)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts_of_code(search, constant, function)


def _along(value: object, path: tuple[str, ...]) -> Iterator[object]:
    """``value`` and, where it is a module, the submodules that ``path`` leads through."""
    yield value
    for name in path:
        if not isinstance(value, ModuleType):
            return
        value = vars(value).get(name)
        if isinstance(value, ModuleType):
            yield value


def _resolver(scope: dict[str, Any], function: FunctionType) -> Callable[[str], object]:
    """What a name outside the code itself stands for, as far as the import functions go."""
    closure = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}

    def resolve(name: str) -> object:
        return closure.get(name, scope.get(name, getattr(builtins, name, None)))

    return resolve


def _note_import(
    search: _Search, found: ImportedName, scope: dict[str, Any], function: str
) -> None:
    name = found.module
    if found.level:
        package = scope.get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * found.level + name, package)
        except ImportError:
            return
    if not name:
        return
    how = How.CALL if found.called else How.FROM if found.attributes else How.IMPORT
    seen = Sighting(name, how, function, found.line)
    note_module(search.findings, seen, search.by_value)
    for attribute in found.attributes:
        candidate = f"{name}.{attribute}"
        if attribute != "*" and _may_be_module(name, candidate, attribute):
            note_module(search.findings, replace(seen, name=candidate), search.by_value)


def _may_be_module(parent: str, candidate: str, attribute: str) -> bool:
    """Whether ``from parent import attribute`` gives a module; a guess where parent is missing."""
    origin = locate(parent).origin
    if origin is Origin.STANDARD:
        return False
    if origin is Origin.MISSING:
        return attribute.islower()
    return locate(candidate).origin is not Origin.MISSING
