"""A clone that waits runs a call that does nothing, and nobody can tell afterwards."""

import subprocess
import sys
from pathlib import Path

COMPARE = """
import os, random, sys, threading
import cloudpickle
from readie_executor.environment import Surroundings
from readie_executor.rehearsing import rehearse

def state():
    return (
        dict(os.environ), os.getcwd(), sys.argv[:], sys.path[:], id(sys.modules["__main__"]),
        threading.active_count(), sorted(os.listdir("/proc/self/fd")), random.getstate(),
        sorted(os.listdir()),
    )

surroundings = Surroundings(sys.argv[1], {})
surroundings.create()
surroundings.enter()
before = state()
rehearse(surroundings)
assert state() == before
"""


def test_a_rehearsal_leaves_no_trace(short_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-c", COMPARE, short_path], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ended.stderr == ""
