"""Source modules that travel inside a call: how they are made importable where the call runs.

The payload of a pickled call may begin with `install` of the caller's own modules, so that what
follows it in the pickle, and the function itself, import them as they would at home.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from types import ModuleType
from typing import TypeAlias

# Module name → (file name at the caller, whether it is a package, source; None: a namespace).
Sources: TypeAlias = Mapping[str, tuple[str, bool, bytes | None]]


class ShippedModules(MetaPathFinder, InspectLoader):
    """Finds and loads modules from the sources it was given, ahead of every other finder."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.sources:
            return None
        filename, is_package, source = self.sources[fullname]
        spec = importlib.util.spec_from_loader(
            fullname, self, origin=filename, is_package=is_package
        )
        if spec is not None and source is None:
            # Only the caller's part of the namespace travelled: parts installed here complete it.
            here = importlib.machinery.PathFinder.find_spec(fullname, path)
            if here is not None and here.submodule_search_locations:
                spec.submodule_search_locations = list(here.submodule_search_locations)
        return spec

    def is_package(self, fullname: str) -> bool:
        return self.sources[fullname][1]

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.sources[fullname][2] or b"")

    def exec_module(self, module: ModuleType) -> None:
        filename, _, source = self.sources[module.__name__]
        module.__file__ = filename
        exec(compile(source or b"", filename, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


def install(sources: Sources) -> ShippedModules:
    """Make ``sources`` importable, beside those of earlier calls of a session.

    Modules of these names that are loaded already are let go, unless they came from equal sources.
    """
    before = next((other for other in sys.meta_path if isinstance(other, ShippedModules)), None)
    known = dict(before.sources) if before is not None else {}
    finder = ShippedModules({**known, **sources})
    sys.meta_path[:] = [
        finder,
        *(other for other in sys.meta_path if not isinstance(other, ShippedModules)),
    ]
    if all(known.get(name) == source for name, source in sources.items()):
        return finder
    own = {name for name, (_, _, source) in sources.items() if source is not None}
    for name in list(sys.modules):
        if name in own or any(name.startswith(f"{parent}.") for parent in own):
            del sys.modules[name]
    return finder
