"""Makes a clone of a checkpoint look, to the code in it, like a process of its own."""

import _locale
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Self

from readie_executor.generators import Generators

UMASK = 0o022
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_AUTHKEY_BYTES = 32  # as `multiprocessing` itself makes it
# Names and counts that modules keep and that would be the same in every clone; `None` is unknown.
_CACHES = {
    "tempfile": ("_name_sequence", "tempdir"),
    "uuid": ("_last_timestamp",),
    "torch.cuda": ("_cached_device_count",),
}


@dataclass(frozen=True, slots=True)
class Baseline:
    """Settings of the interpreter before anything was imported ahead."""

    warning_filters: tuple[Any, ...]
    recursion_limit: int
    gc_threshold: tuple[int, ...]
    root_log_level: int
    locale: str
    soft_limits: tuple[tuple[int, int], ...]  # of the process; what each is for, and how much

    @classmethod
    def take(cls) -> Self:
        return cls(
            warning_filters=tuple(warnings.filters),
            recursion_limit=sys.getrecursionlimit(),
            gc_threshold=gc.get_threshold(),
            root_log_level=logging.root.level,
            locale=_locale.setlocale(_locale.LC_ALL, None),
            soft_limits=tuple((kind, resource.getrlimit(kind)[0]) for kind in _LIMITS),
        )


def settle(baseline: Baseline) -> None:
    """Undo what imports may have set; a process that was settled hands it on to its clones.

    Not undone: the hash seed of strings, which the interpreter fixes at its start, and settings
    inside packages, which are theirs.
    """
    os.umask(UMASK)
    _reset_signals()
    _reset_interpreter(baseline)
    _reset_warnings(baseline)
    _reset_logging(baseline)
    _reset_limits(baseline)


def freshen(generators: Generators, entropy: bytes = b"") -> None:
    """In a clone: reseed and forget what must differ between clones."""
    generators.reseed(entropy)
    _forget_identity()


def _reset_signals() -> None:
    own: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGPIPE: signal.SIG_IGN,
        signal.SIGXFSZ: signal.SIG_IGN,
    }
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        fresh = own.get(number, signal.SIG_DFL)
        if signal.getsignal(number) is not fresh:
            with contextlib.suppress(OSError, ValueError):  # the C library keeps a few to itself
                signal.signal(number, fresh)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)


def _reset_interpreter(baseline: Baseline) -> None:
    sys.excepthook = sys.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__
    sys.displayhook = sys.__displayhook__
    threading.excepthook = threading.__excepthook__
    for each in (sys, threading):
        each.setprofile(None)
        each.settrace(None)
    sys.setrecursionlimit(baseline.recursion_limit)
    gc.set_threshold(*baseline.gc_threshold)
    gc.enable()
    if _locale.setlocale(_locale.LC_ALL, None) != baseline.locale:
        _locale.setlocale(_locale.LC_ALL, baseline.locale)  # how text files are read depends on it
    if socket := sys.modules.get("socket"):
        socket.setdefaulttimeout(None)


def _reset_warnings(baseline: Baseline) -> None:
    warnings.resetwarnings()  # also makes every "once per location" memory void
    warnings.filters[:] = list(baseline.warning_filters)  # type: ignore[index]


def _reset_logging(baseline: Baseline) -> None:
    """Only the root logger, which belongs to the function; packages keep their own."""
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
    logging.root.setLevel(baseline.root_log_level)
    logging.disable(logging.NOTSET)


def _reset_limits(baseline: Baseline) -> None:
    """As far as it can be done: who lowered a hard limit has lowered it for ever."""
    for kind, before in baseline.soft_limits:
        soft, hard = resource.getrlimit(kind)
        if soft != before:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (before, hard))


def _forget_identity() -> None:
    for module, names in _CACHES.items():
        if module in sys.modules:
            for name in names:
                setattr(sys.modules[module], name, None)
    if process := sys.modules.get("multiprocessing.process"):
        process.current_process().authkey = os.urandom(_AUTHKEY_BYTES)
    if uuid := sys.modules.get("uuid"):
        # The C library that may stand behind `uuid1` keeps its clock sequence in memory, so clones
        # asking in the same microsecond would get the same identifier. Python's own way, with a
        # random node as RFC 9562 §6.10 allows, keeps nothing.
        uuid._generate_time_safe = None  # type: ignore[attr-defined]
        uuid._node = _random_node()  # type: ignore[attr-defined]


def _random_node() -> int:
    """48 bits with the multicast bit set, which no network card has."""
    return int.from_bytes(os.urandom(6), "big") | 1 << 40
