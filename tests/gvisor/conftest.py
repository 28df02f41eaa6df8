"""The real runsc of this machine, for tests that start sandboxes with it."""

import os
import sys
from pathlib import Path

import pytest

from readie_worker.sandbox.gvisor.builds import identify
from readie_worker.sandbox.selftest import find_runsc
from support.requirements import require_part


@pytest.fixture(scope="session")
def runsc() -> Path:
    """A `runsc` that this user may use, or the test does not go on."""
    usable = sys.platform == "linux" and os.geteuid() == 0
    found = find_runsc() if usable else None
    version = identify(found.resolve()).version if found is not None else None
    require_part("runsc", version, "infra/gvisor/install, as root on Linux")
    assert found is not None
    return found.resolve()
