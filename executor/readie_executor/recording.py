"""Records which environment variables packages read while they are imported."""

import os
from typing import Any, Self

MAX_NAMES = 500

# Read by C code, out of Python's sight, when one of these libraries is loaded.
_READ_BY_LIBRARIES = {
    "libgomp": ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY"),
    "libiomp": ("OMP_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME"),
    "openblas": ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_CORETYPE"),
    "libmkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    "libcuda": ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
}


class EnvironmentReads:
    """While active, notes the names looked up in `os.environ`, by whatever way of access."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._original: Any = None

    def __enter__(self) -> Self:
        kind: Any = type(os.environ)
        original = self._original = kind.__getitem__

        def noting(environ: Any, name: Any) -> Any:
            if isinstance(name, str) and len(self.names) < MAX_NAMES:
                self.names.add(name)
            return original(environ, name)

        kind.__getitem__ = noting
        return self

    def __exit__(self, *_: object) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__ = self._original


def read_by_libraries() -> set[str]:
    """Variables that native libraries mapped into this process have looked at (Linux)."""
    try:
        with open("/proc/self/maps") as file:  # noqa: PTH123 - pathlib stays unloaded
            mapped = file.read()
    except OSError:
        return set()
    return {
        name for library, names in _READ_BY_LIBRARIES.items() if library in mapped for name in names
    }
