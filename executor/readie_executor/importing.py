"""Times the modules that a call loads for the first time, without standing in its way."""

import sys
import time
from _thread import get_ident
from collections.abc import Callable
from typing import Any, Self

MAX_NAMES = 200  # more than any report needs; a call that imports in a loop cannot grow it

# Where the interpreter itself looks this function up, whoever has replaced `__import__`. Without it
# (another Python) nothing is timed.
_BOOTSTRAP = sys.modules["_frozen_importlib"]
_HOOK = "_find_and_load"


class ImportTimer:
    """While active, adds up the time of outermost first-time imports on the starting thread.

    The interpreter asks importlib for a module only when `sys.modules` lacks it, so this costs
    nothing on repeated imports. ``seconds`` holds the sum; ``names`` the outermost modules in
    order, those of the standard library left out: no checkpoint is priced by them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.names: list[str] = []
        self._thread = get_ident()
        self._depth = 0
        self._original: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        self._original = getattr(_BOOTSTRAP, _HOOK, None)
        if self._original is not None:
            setattr(_BOOTSTRAP, _HOOK, self._timed_loader(self._original))
        return self

    def __exit__(self, *_: object) -> None:
        if self._original is not None:
            setattr(_BOOTSTRAP, _HOOK, self._original)
            self._original = None

    def _timed_loader(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def find_and_load(name: str, import_function: Any) -> Any:
            if self._depth or get_ident() != self._thread:
                return load(name, import_function)
            self._depth = 1
            begun = time.perf_counter()
            try:
                module = load(name, import_function)
                self._note(name)
                return module
            finally:
                self.seconds += time.perf_counter() - begun
                self._depth = 0

        # The interpreter cuts importlib's own frames out of tracebacks by their file name, and
        # the user's traceback should not show this one either.
        code = find_and_load.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        find_and_load.__code__ = code
        return find_and_load

    def _note(self, name: str) -> None:
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and len(self.names) < MAX_NAMES:
            self.names.append(name)
