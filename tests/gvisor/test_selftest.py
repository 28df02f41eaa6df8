"""The self-test that finds out builds which die at random."""

import json
import subprocess
import sys
from pathlib import Path

from readie_worker.sandbox.selftest import try_runsc


def run_selftest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "readie_worker.sandbox.selftest", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def shell_script(folder: Path, text: str) -> Path:
    script = folder / "runsc"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return script


def test_the_real_runsc_passes(runsc: Path) -> None:
    done = run_selftest("--quick", "--runsc", str(runsc))

    verdict = json.loads(done.stdout)
    assert done.returncode == 0, verdict
    assert verdict["ok"] is True
    assert verdict["rounds"] == 2


async def test_a_build_that_dies_now_and_then_is_found_out(runsc: Path, short_path: Path) -> None:
    """Every fifth `start` or `restore` is lost, as the real bad build's are."""
    flaky = shell_script(
        short_path,
        f'echo >>{short_path}/calls; [ "$(grep -c "" {short_path}/calls)" -lt 9 ] || exit 2; '
        f'exec {runsc} "$@"',
    )

    verdict = await try_runsc(flaky)

    assert not verdict.ok
    assert "exited with 2" in verdict.reason


async def test_a_binary_that_does_nothing_fails_with_a_reason(runsc: Path, tmp_path: Path) -> None:
    idle = shell_script(tmp_path, "echo runsc version release-20260101.0")

    verdict = await try_runsc(idle)

    assert not verdict.ok
    assert "self-test" in verdict.reason


def test_a_missing_binary_is_refused_in_words(tmp_path: Path) -> None:
    done = run_selftest("--runsc", str(tmp_path / "none"))

    assert done.returncode == 1
    assert "cannot be run" in json.loads(done.stdout)["reason"]
