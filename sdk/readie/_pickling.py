"""A call as bytes, and results back as objects.

Functions of ``__main__`` and of the module that holds the remote function travel by value, as
cloudpickle does it. Other local modules travel as source files (see `readie._shipping`), so that
they are real modules where the call runs; everything else is imported there by name.
"""

import dataclasses
import functools
import io
import pickle
import threading
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle
from cloudpickle import cloudpickle as wire_names

from readie._diagnosis import find_culprit, size_tree
from readie._errors import SerializationError
from readie._imports import Findings, note_module
from readie._shipping import collect
from readie_wire import shipping
from readie_wire.extracting import How, Sighting
from readie_wire.reducing import reduce_cached_property

if TYPE_CHECKING:
    from collections.abc import Iterator

_SENTINELS: dict[type, str] = {
    type(getattr(dataclasses, name)): name
    for name in ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")
}
_by_value_lock = threading.RLock()  # what is pickled may call a remote function meanwhile


@dataclass(frozen=True, slots=True)
class Payload:
    """``data`` is the body of the call; ``imports`` every module to price; ``modules`` shipped.

    ``seen`` tells where each of the imports was found first.
    """

    data: bytes
    imports: tuple[str, ...]
    modules: tuple[str, ...]
    seen: tuple[Sighting, ...]


def pack(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    findings: Findings,
    by_value: str = "",
) -> Payload:
    """Pickle one call. ``findings`` are those of the function; ``by_value`` is its local module.

    Raises `SerializationError` with the path to what cannot travel.
    """
    seen = Findings(dict(findings.imports), set(findings.local))
    call = {"func": function, "args": tuple(args), "kwargs": dict(kwargs)}
    try:
        data = _dump(call, seen, by_value)
        shipment = collect(seen.local)
        if shipment.sources:
            # First in the pickle, so that it is carried out before anything needs the modules.
            data = _dump({"modules": _Install(shipment.sources), **call}, seen, by_value)
    except (SerializationError, MemoryError):
        raise
    except Exception as error:  # reducers are the caller's code and raise anything
        raise _explained(function, args, kwargs, error, by_value) from error
    found = shipment.imports | seen.imports
    imports = tuple(sorted(found))
    return Payload(data, imports, tuple(shipment.names), tuple(found[name] for name in imports))


def unpack(data: bytes) -> Any:
    """The object of a result. Classes that exist here stay the ones that exist here.

    Raises whatever unpickling raises: `readie._results` tells it as what it is.
    """
    return _Unpickler(io.BytesIO(data)).load()


class _Install:
    """Unpickles into `readie_wire.shipping.install`."""

    def __init__(self, sources: shipping.Sources) -> None:
        self._sources = sources

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.install, (dict(self._sources),)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """With its file name, which cloudpickle leaves out: remote tracebacks name file and line."""
    make, operands = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    kept = (code.co_filename if each == "<dynamic-code>" else each for each in operands)
    return make, tuple(kept)


def _reduce_sentinel(sentinel: object) -> str:
    """By name: `dataclasses` compares with ``is``."""
    return _SENTINELS[type(sentinel)]


def _has_own_slots(kind: type) -> bool:
    """`typing.NamedTuple` gives a class the slots it has, and lets nobody else do so."""
    made = typing.NamedTuple in getattr(kind, "__orig_bases__", ())
    return "__slots__" in vars(kind) and not made


def _with_slots(kind: type, reduced: Any) -> Any:
    """The definition of a class by value, with the slots that cloudpickle leaves out."""
    if reduced is NotImplemented or reduced[0] is not wire_names._make_skeleton_class:
        return reduced
    make, (metaclass, name, bases, namespace, *rest), *others = reduced
    namespace = {**namespace, "__slots__": vars(kind)["__slots__"]}
    return make, (metaclass, name, bases, namespace, *rest), *others


def _reduce_cached(function: Any, by_value: str) -> Any:
    """A function under ``lru_cache``: by name where it is found by name, else with an empty cache."""
    found = wire_names._lookup_module_and_qualname(function)
    if found is not None and found[0].__name__ != by_value:
        return NotImplemented
    settings = function.cache_parameters()
    sizes = (settings["maxsize"], settings["typed"])
    make = (function.__wrapped__, *sizes, functools._CacheInfo)
    attributes = {name: each for name, each in vars(function).items() if name != "cache_parameters"}
    return functools._lru_cache_wrapper, make, attributes


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped base
    """cloudpickle that keeps file names, knows cached functions and notes the modules it meets."""

    dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
        {
            types.CodeType: _reduce_code,
            functools.cached_property: reduce_cached_property,
            **dict.fromkeys(_SENTINELS, _reduce_sentinel),
        },
        cloudpickle.Pickler.dispatch_table,
    )

    def __init__(self, file: io.BytesIO, seen: Findings, by_value: str) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._seen = seen
        self._by_value = by_value

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, functools._lru_cache_wrapper):
            reduced = _reduce_cached(obj, self._by_value)
        else:
            reduced = super().reducer_override(obj)
            if isinstance(obj, type) and _has_own_slots(obj):
                reduced = _with_slots(obj, reduced)
        if reduced is NotImplemented:
            self._note(obj)
        return reduced

    def _note(self, obj: Any) -> None:
        if isinstance(obj, types.ModuleType):
            note_module(self._seen, Sighting(obj.__name__, How.VALUE), self._by_value)
            return
        name = getattr(obj, "__module__", None)
        if isinstance(name, str):
            note_module(self._seen, Sighting(name, How.VALUE), self._by_value)


class _Unpickler(pickle.Unpickler):
    """Leaves classes of this process alone.

    A class pickled by value comes back with its definition. cloudpickle recognises it by its
    tracking id and then writes the definition, a copy made elsewhere, over the class that is here.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._ours: set[type] = set()

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = super().find_class(module_name, global_name)
        if found is wire_names._make_skeleton_class or found is wire_names._make_skeleton_enum:
            return functools.partial(self._make_class, found)
        if found is wire_names._class_setstate:
            return self._set_class_state
        return found

    def _make_class(self, make: Callable[..., type], *operands: Any) -> type:
        tracking_id = operands[-2]
        known = tracking_id in wire_names._DYNAMIC_CLASS_TRACKER_BY_ID
        made = make(*operands)
        if known:
            self._ours.add(made)
        return made

    def _set_class_state(self, made: type, state: Any) -> type:
        if made in self._ours:
            return made
        return wire_names._class_setstate(made, state)  # type: ignore[no-any-return]


def _dump(value: object, seen: Findings, by_value: str) -> bytes:
    file = io.BytesIO()
    with _pickled_by_value(by_value):
        _Pickler(file, seen, by_value).dump(value)
    return file.getvalue()


@contextmanager
def _pickled_by_value(name: str) -> "Iterator[None]":
    """cloudpickle keeps the modules to pickle by value in a set of its own, for the process."""
    if not name:
        yield
        return
    module = types.ModuleType(name)  # only its name counts
    with _by_value_lock:
        if name in cloudpickle.list_registry_pickle_by_value():  # by the user's own wish
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _explained(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    error: BaseException,
    by_value: str,
) -> SerializationError:
    def travels(value: object) -> bool:
        try:
            _dump(value, Findings(), by_value)
        except Exception:  # noqa: BLE001 - as above
            return False
        return True

    culprit = find_culprit(_roots(function, args, kwargs), travels)
    if culprit is None:
        return SerializationError(f"the call cannot be pickled: {error}")
    return SerializationError(f"{culprit}\n({type(error).__name__}: {error})", culprit.path)


def largest_parts(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, by_value: str
) -> str:
    """What makes a call large, a part a line."""

    def size(value: object) -> int | None:
        try:
            return len(_dump(value, Findings(), by_value))
        except Exception:  # noqa: BLE001 - as above
            return None

    return size_tree(_roots(function, args, kwargs), size)


def _roots(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, object]:
    roots: dict[str, object] = {getattr(function, "__name__", repr(function)): function}
    roots |= {f"argument {number}": value for number, value in enumerate(args, 1)}
    return roots | {f"argument {name}": value for name, value in kwargs.items()}
