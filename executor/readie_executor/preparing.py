"""Imports packages ahead, watches what they do, and makes the process fit to be cloned."""

import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from readie_executor.gating import Doings, Holdings
from readie_executor.generators import Generators, can_reseed_cryptography
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
# In names of variables that hold what nobody else should read.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
# A thread that was joined is on the kernel's list a moment longer, on a busy machine for a while.
_THREADS_END_WITHIN_S = 1.0
_POLL_S = 0.001
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
        imported = [_import_one(name) for name in names]
    _run_hooks()
    _check(holdings, imported)
    warnings = [*_of_packages(imported), *_of_libraries()]
    generators = Generators()
    for _ in range(_COLLECTIONS):
        gc.collect()
    gc.freeze()
    environment = read_by_libraries().union(*(one.reads for one in imported))
    report = {
        "imports": [one.to_json() for one in imported],
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


@dataclass(frozen=True, slots=True)
class _Imported:
    """What the import of one package took, read, wrote into the environment, and left behind."""

    name: str
    seconds: float
    reads: frozenset[str]
    secrets: frozenset[str]
    done: Doings

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seconds": round(self.seconds, 6),
            "environment": sorted(self.reads),
            "problem": self.done.problem,
        }


def _import_one(name: str) -> _Imported:
    before, variables = Holdings.take(), frozenset(os.environ)
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
    added = frozenset(os.environ) - variables
    return _Imported(
        name,
        seconds,
        reads=frozenset(reads.names),
        secrets=frozenset(one for one in added if any(word in one.upper() for word in _SECRET)),
        done=Holdings.take().since(before),
    )


def _run_hooks() -> None:
    try:
        hooks.run_before_checkpoint()
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))
        raise RefusedError(f"a before_checkpoint hook failed: {error!r}", trace=trace) from error


def _check(before: Holdings, imported: Sequence[_Imported]) -> None:
    """The safety gate, after the hooks have closed what they could; names every package at fault."""
    now = _once_threads_ended(before)
    if now.problem is None:
        return
    faults = {one.name: one.done.still(now).problem for one in imported}
    if named := [f"{name} {problem}" for name, problem in faults.items() if problem is not None]:
        raise RefusedError("; ".join(named), next(name for name in faults if faults[name]))
    raise RefusedError(f"the before_checkpoint hooks {now.problem}")


def _once_threads_ended(before: Holdings) -> Doings:
    """What was done, once the threads that are just ending have; others are waited for in vain."""
    deadline = time.monotonic() + _THREADS_END_WITHIN_S
    while (now := Holdings.take().since(before)).threads and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return now


def _of_packages(imported: Sequence[_Imported]) -> list[str]:
    """What packages did that forbids no checkpoint but deserves a sentence in its report."""
    found = [
        f"{one.name} {one.done.problem}, until a before_checkpoint hook ended that"
        for one in imported
        if one.done.problem is not None
    ]
    found += [
        f"{one.name} set {', '.join(sorted(one.secrets))}: no call sees it, but whoever can read the "
        "checkpoint may find it there"
        for one in imported
        if one.secrets
    ]
    return found


def _of_libraries() -> list[str]:
    """The same of libraries that are known to keep something."""
    found = []
    cuda = sys.modules.get("torch.cuda")
    if getattr(cuda, "_cached_device_count", None) is not None:
        found.append("torch has cached the number of devices; it is forgotten in every clone")
    bindings = sys.modules.get("cryptography.hazmat.bindings._rust")
    if bindings is not None and not can_reseed_cryptography(bindings):
        found.append(
            "cryptography has an OpenSSL of its own, whose random state this release lets nobody "
            "reseed: clones restored from disk make equal keys"
        )
    return found
