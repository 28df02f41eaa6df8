"""From the bytes of a call to a function that can be run, for each kind of call."""

import importlib
import json
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType, ModuleType
from typing import Any, Self

from readie_executor.exceptions import describe
from readie_executor.sharing import SharedGlobals
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.framing import Message
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind

RESULT_LIMIT = 1 << 30  # bytes, where the worker names none
SOURCE_FILE = "<source>"  # what tracebacks call the source text of a call

# Flags of a code object (CO_GENERATOR, CO_ASYNC_GENERATOR); `inspect` would be loaded for them.
_GENERATOR_FLAGS = 0x20 | 0x200
_GENERATORS_REFUSED = "generator functions are not supported yet; return a list"

Thunk = Callable[[], Any]


class CallRefusedError(Exception):
    """The call cannot be turned into a function; ``info`` is what the caller is told."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the worker delivered it. ``workdir`` replaces the private working directory.

    ``shared`` is what a call of a session has in common with the others of it.
    """

    call_id: str
    kind: CallKind
    body: bytes
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    result_limit: int
    result_encoding: Encoding
    workdir: str | None
    shared: SharedGlobals | None = None

    @classmethod
    def from_message(cls, message: Message, shared: SharedGlobals | None = None) -> Self:
        """Raises `ValueError` for a header that no worker of this protocol writes."""
        header = message.header
        kind = CallHeader.from_json(header).kind
        default = Encoding.PICKLE if kind is CallKind.PICKLE else Encoding.JSON
        return cls(
            call_id=str(header.get("call_id", "")),
            kind=kind,
            body=message.body,
            environment=dict(header.get("environment") or {}),
            secrets=dict(header.get("secrets") or {}),
            result_limit=int(header.get("result_limit") or RESULT_LIMIT),
            result_encoding=Encoding(header.get("result_encoding") or default),
            workdir=header.get("workdir"),
            shared=shared,
        )


def load_unpickler(message: Message) -> None:
    """Load what only pickled calls need; a checkpoint has it already, a JSON call does without."""
    if message.header.get("kind") == CallKind.PICKLE:
        importlib.import_module("cloudpickle")


def load(call: Call) -> Thunk:
    """What runs the call. Raises `CallRefusedError`, and whatever the caller's modules raise."""
    if call.kind is CallKind.PICKLE:
        return _from_pickle(call)
    request = _request(call.body)
    args, kwargs = request.get("args") or [], request.get("kwargs") or {}
    if call.kind is CallKind.FUNCTION:
        return _thunk(_imported(str(request.get("function", ""))), args, kwargs)
    entrypoint = request.get("entrypoint")
    return _from_source(str(request.get("source", "")), entrypoint, args, kwargs, call.shared)


def run(thunk: Thunk) -> Any:
    """The function's value; a coroutine is run to its end in an event loop of its own."""
    value = thunk()
    if isinstance(value, CoroutineType):
        import asyncio  # only an async function pays for it

        return asyncio.run(value)
    return value


def _thunk(function: Any, args: Any, kwargs: Any) -> Thunk:
    if _makes_generators(function):
        raise _refused(ErrorKind.INVALID_REQUEST, _GENERATORS_REFUSED)

    def call_function() -> Any:
        value = function(*args, **kwargs)
        if isinstance(value, GeneratorType | AsyncGeneratorType) and _is_body_of(value, function):
            raise _refused(ErrorKind.INVALID_REQUEST, _GENERATORS_REFUSED)
        return value

    return call_function


def _makes_generators(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _GENERATOR_FLAGS)


def _is_body_of(value: Any, function: Any) -> bool:
    """Whether a generator is a decorated or partial generator function's own, not its result."""
    wrapped = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    code = getattr(value, "gi_code", None) or getattr(value, "ag_code", None)
    return wrapped is not None and getattr(wrapped, "__code__", None) is code


def _from_pickle(call: Call) -> Thunk:
    import cloudpickle  # see load_unpickler

    loads = cloudpickle.loads if call.shared is None else call.shared.loads
    try:
        parts = loads(call.body)
        function, args, kwargs = parts["func"], parts["args"], parts["kwargs"]
    except Exception as error:  # the pickle imports and runs the caller's code
        raise _undecodable(error) from error
    return _thunk(function, args, kwargs)


def _undecodable(error: Exception) -> CallRefusedError:
    found = describe(error)
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"; the sandbox has no module {error.name!r}"
    return CallRefusedError(
        ErrorInfo(
            kind=ErrorKind.SERIALIZATION,
            type=found.type,
            message=f"the call could not be unpickled: {found.type}: {found.message}{hint}",
            traceback=found.traceback,
            cause=found.cause,
            context=found.context,
            details={"module": error.name} if isinstance(error, ModuleNotFoundError) else {},
        )
    )


def _request(body: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _refused(ErrorKind.INVALID_REQUEST, f"the call is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise _refused(ErrorKind.INVALID_REQUEST, "the call is not a JSON object")
    for name, kind in (("args", list), ("kwargs", dict)):
        if not isinstance(request.get(name) or kind(), kind):
            raise _refused(ErrorKind.INVALID_REQUEST, f"{name} is not a JSON {kind.__name__}", name)
    return request


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        message = f"function is {name!r}; write it as 'package.module:name'"
        raise _refused(ErrorKind.INVALID_REQUEST, message, "function")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            message = f"function: the sandbox has no module {error.name!r}"
            raise _refused(ErrorKind.INVALID_REQUEST, message, "function") from None
        raise
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return _callable(found, f"{module_name} has no function {attribute!r}", "function")


def _from_source(
    source: str, entrypoint: Any, args: Any, kwargs: Any, shared: SharedGlobals | None
) -> Thunk:
    """Without an entry point the text runs as a script whose value is its variable ``result``.

    In a session it goes on where the last one stopped, but for that variable.
    """
    if shared is None:
        module = ModuleType("__main__" if entrypoint is None else "source")
        sys.modules[module.__name__] = module
    else:
        module = shared.main
        module.__dict__.pop("result", None)
    module.__dict__["__file__"] = SOURCE_FILE
    lines = source.splitlines(keepends=True)
    # No modification time: linecache then never looks for the file, and tracebacks show the lines.
    linecache.cache[SOURCE_FILE] = (len(source), None, lines, SOURCE_FILE)

    def run_source() -> Any:
        exec(compile(source, SOURCE_FILE, "exec", dont_inherit=True), module.__dict__)
        if entrypoint is None:
            return module.__dict__.get("result")
        function = _callable(
            module.__dict__.get(str(entrypoint)),
            f"the source defines no function {str(entrypoint)!r}",
            "entrypoint",
        )
        return _thunk(function, args, kwargs)()

    return run_source


def _callable(found: Any, problem: str, field: str) -> Any:
    if not callable(found):
        raise _refused(ErrorKind.INVALID_REQUEST, f"{field}: {problem}", field)
    return found


def _refused(kind: ErrorKind, message: str, field: str = "") -> CallRefusedError:
    details = {"field": field} if field else {}
    return CallRefusedError(ErrorInfo(kind=kind, type="", message=message, details=details))
