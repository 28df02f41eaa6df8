"""What the calls of a session share beside the process: the globals of their callers' own code.

A pickled function brings the globals it uses along. In a session, functions of one module get one
namespace, which lives as long as the session. A variable belongs to the session from the first call
on that has it, so that what a call leaves there is not replaced by what the caller still holds;
functions, classes and modules are code, and follow the caller.
"""

import io
import pickle
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_CODE = (FunctionType, BuiltinFunctionType, type, ModuleType)


class SharedGlobals:
    """The namespaces of one session, by module name."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, Any]] = {}

    @property
    def main(self) -> ModuleType:
        """The module ``__main__``, which source text and pickled functions have in common."""
        return sys.modules["__main__"]

    def of(self, module: str) -> dict[str, Any]:
        return vars(self.main) if module == "__main__" else self._spaces.setdefault(module, {})

    def loads(self, body: bytes) -> Any:
        """Unpickle a call into this session. Raises whatever its pickle raises."""
        return _Unpickler(io.BytesIO(body), self).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: SharedGlobals) -> None:
        super().__init__(file)
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        if module == "cloudpickle.cloudpickle":
            if name == "_make_function":
                return self._make_function
            if name == "_function_setstate":
                return _set_state
        return super().find_class(module, name)

    def _make_function(
        self, code: CodeType, given: dict[str, Any], name: str, defaults: Any, closure: Any
    ) -> FunctionType:
        space = self._shared.of(str(given.get("__name__", "__main__")))
        for key, value in given.items():
            space.setdefault(key, value)
        space.setdefault("__builtins__", __builtins__)
        return FunctionType(code, space, name, defaults, closure)


def _set_state(function: FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    from cloudpickle import cloudpickle  # loaded already: the call came as a pickle

    attributes, slots = state
    space = function.__globals__
    given = {
        name: value
        for name, value in slots["__globals__"].items()
        if name not in space or isinstance(value, _CODE) or hasattr(value, "__wrapped__")
    }
    cloudpickle._function_setstate(function, (attributes, {**slots, "__globals__": given}))
