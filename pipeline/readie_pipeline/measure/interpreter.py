"""Runs a program of `readie_pipeline.measure.inside` in a fresh process of some interpreter."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure import inside
from readie_pipeline.measure.parentage import die_with_parent

PROBE = Path(inside.__file__).with_name("probe.py")
INVENTORY = Path(inside.__file__).with_name("inventory.py")

_STDERR_TAIL = 4_096  # bytes of a crashed process's stderr that are read for its last line
_SELF_TEST_S = 10.0  # what `unshare … true` may take on a busy machine

# One thread for each native library, as when a checkpoint is captured: their threads cost memory.
_THREAD_LIMITS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)

# Where a process keeps its network, libraries of hubs would ask theirs all the same, and wait for it.
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")

# Ways to wall a process off, the best first. Without a network: cloud libraries look for credentials
# on it while they are imported, and would be charged for the time that takes. With process numbers of
# its own, it can neither end us nor leave a process behind. A shell is the first of these processes,
# for that one does not get the signals that end others. What it says of its child's end is not wanted.
_SCRIPT = 'exec 3>&2 2>/dev/null; trap : HUP INT QUIT TERM; (exec "$@" 2>&3 3>&-); exit'
_SHELL = ("sh", "-c", _SCRIPT, "sh")
_ALONE = ("--pid", "--fork", "--kill-child", "--mount-proc", *_SHELL)
_WALLS = (
    ("unshare", "--net", *_ALONE),
    ("unshare", "--map-root-user", "--net", *_ALONE),
    ("unshare", "--net", "--"),
    ("unshare", "--map-root-user", "--net", "--"),
)
_BY_SIGNAL = 128  # what a shell adds to the number of the signal that ended its child


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter to measure.

    ``home`` is the only folder its processes are told of: caches that packages build at their first
    import are found there by the next process. ``wrapper`` goes before the command.
    """

    home: Path
    python: Path = field(default_factory=lambda: Path(sys.executable))
    wrapper: Sequence[str] = ()

    def run(self, program: Path, request: object, timeout: float) -> Any:
        """The program's answer. Raises `MeasureError`: it ended badly, or took too long (seconds)."""
        # What is left of a package's processes may still be writing when it is removed.
        with tempfile.TemporaryDirectory(
            prefix="probe-", dir=self.home, ignore_cleanup_errors=True
        ) as folder:
            answer = Path(folder) / "answer.json"
            complaints = Path(folder) / "stderr"
            with complaints.open("wb") as stderr:
                status = self._wait(program, answer, request, stderr.fileno(), timeout)
            if status == 0 and answer.exists():
                return json.loads(answer.read_bytes())
            raise MeasureError(_why(status, complaints))

    def _wait(
        self, program: Path, answer: Path, request: object, stderr: int, timeout: float
    ) -> int:
        command = [*self.wrapper, str(self.python), "-I", "-X", "utf8", str(program), str(answer)]
        parent = os.getpid()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=answer.parent,
                env=self._environment(),
                start_new_session=True,
                # No other thread runs while we measure.
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509
            )
        except OSError as error:
            raise MeasureError(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            process.communicate(json.dumps(request).encode(), timeout)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"took longer than {timeout:g} s") from error
        finally:
            # The whole group: a package may have started processes of its own.
            _kill_group(process.pid)
            process.wait()
        return process.returncode

    def _environment(self) -> dict[str, str]:
        """An allow-list: nothing of the pipeline's own environment, secrets least of all."""
        return {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": str(self.home / "matplotlib"),
            **_THREAD_LIMITS,
            **_OFFLINE,
        }


def network_off() -> Sequence[str] | None:
    """The wrapper that takes a process's network away; ``None`` where this machine has none.

    Where the machine allows it, it also keeps the process from all others.
    """
    for wrapper in _WALLS:
        try:
            done = subprocess.run(
                [*wrapper, "true"], capture_output=True, timeout=_SELF_TEST_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return wrapper
    return None


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # all of it has ended; macOS answers EPERM for a group of zombies


def _why(status: int, complaints: Path) -> str:
    with complaints.open("rb") as file:
        file.seek(max(0, complaints.stat().st_size - _STDERR_TAIL))
        lines = file.read().decode("utf-8", "backslashreplace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ended = _ending(status)
    return f"{ended}: {last}" if last else ended


def _ending(status: int) -> str:
    """In words; ``status`` is a process's own, or that of the shell around it."""
    number = -status if status < 0 else status - _BY_SIGNAL
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with exit code {status}" + ("" if status else " before it was imported")
