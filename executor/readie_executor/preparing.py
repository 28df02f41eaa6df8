"""Imports packages ahead, watches what they do, and makes the process fit to be cloned."""

import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from readie_executor.gating import Holdings
from readie_executor.generators import Generators
from readie_executor.hygiene import Baseline
from readie_executor.recording import EnvironmentReads, read_by_libraries
from readie_wire import hooks

# Native libraries start their worker threads at import; one thread each means none of their own.
_THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Two passes free cycles that the first pass's finalizers made.
_COLLECTIONS = 2


class RefusedError(Exception):
    """The process must not be cloned. ``package`` is the import at fault, empty if none is."""

    def __init__(self, reason: str, package: str = "", trace: str = "") -> None:
        super().__init__(reason)
        self.package = package
        self.trace = trace


@dataclass(frozen=True, slots=True)
class Prepared:
    """A process ready to be cloned: what to restore in each clone, and the report on it."""

    baseline: Baseline
    generators: Generators
    report: dict[str, Any]


def prepare(names: Sequence[str]) -> Prepared:
    """Import the modules in order, check what each left behind, collect and freeze the heap.

    Raises `RefusedError` naming the package.
    """
    baseline = Baseline.take()
    begun = time.perf_counter()
    importlib.import_module("cloudpickle")  # most calls need it; it belongs to every checkpoint
    holdings = Holdings.take()
    with _one_native_thread():
        imports = [_import_one(name) for name in names]
    _run_hooks()
    _check(holdings, imports)
    warnings = _worth_a_warning()
    generators = Generators()
    for _ in range(_COLLECTIONS):
        gc.collect()
    gc.freeze()
    environment = read_by_libraries().union(*(one["environment"] for one in imports))
    report = {
        "imports": imports,
        "environment": sorted(environment),
        "seconds": round(time.perf_counter() - begun, 6),
        "modules": len(sys.modules),
        "generators": len(generators),
        "warnings": warnings,
    }
    return Prepared(baseline, generators, report)


@contextmanager
def _one_native_thread() -> Iterator[None]:
    os.environ.update(dict.fromkeys(_THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name in _THREAD_LIMITS:
            os.environ.pop(name, None)


def _import_one(name: str) -> dict[str, Any]:
    before = Holdings.take()
    begun = time.perf_counter()
    try:
        with EnvironmentReads() as reads:
            importlib.import_module(name)
    except BaseException as error:  # a package may even call sys.exit
        trace = "".join(traceback.format_exception(error))
        raise RefusedError(
            f"import of {name} failed: {type(error).__name__}: {error}", name, trace
        ) from error
    seconds = time.perf_counter() - begun
    return {
        "name": name,
        "seconds": round(seconds, 6),
        "environment": sorted(reads.names),
        "problem": Holdings.take().problem_since(before),
    }


def _run_hooks() -> None:
    try:
        hooks.run_before_checkpoint()
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))
        raise RefusedError(f"a before_checkpoint hook failed: {error!r}", trace=trace) from error


def _check(before: Holdings, imports: Sequence[Mapping[str, Any]]) -> None:
    """The safety gate, after the hooks have closed what they could."""
    problem = Holdings.take().problem_since(before)
    if problem is None:
        return
    for one in imports:
        if one["problem"] is not None:
            raise RefusedError(f"{one['name']} {one['problem']}", one["name"])
    raise RefusedError(f"the before_checkpoint hooks {problem}")


def _worth_a_warning() -> list[str]:
    """What does not forbid a checkpoint but deserves a sentence in its report."""
    found = []
    cuda = sys.modules.get("torch.cuda")
    if getattr(cuda, "_cached_device_count", None) is not None:
        found.append("torch has cached the number of devices; it is forgotten in every clone")
    if "cryptography.hazmat.bindings._rust" in sys.modules:
        found.append(
            "cryptography has an OpenSSL of its own, whose random state can be reseeded only by "
            "the fork of a process, not after a restore from disk"
        )
    return found
