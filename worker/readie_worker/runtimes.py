"""Which sandbox runtime this worker uses, and why. The one place that knows them by name."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from readie_wire.publication import ANY_ROOTFS
from readie_worker import trials
from readie_worker.errors import ConfigurationError
from readie_worker.sandbox.api import Ledger, Network, Runtime
from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime
from readie_worker.sandbox.selftest import find_runsc

RuntimeName = Literal["auto", "gvisor", "fork"]

CREATED_AHEAD = 2  # gVisor sandboxes kept created, so that a start only has to restore
SELF_TEST_DEADLINE_S = 120.0  # a few seconds on a quiet machine


@dataclass(frozen=True, slots=True)
class RuntimeWishes:
    """What the settings say. ``folder`` is for what sandboxes keep on the host.

    ``environment`` is the worker's own, of which a runtime passes on very little. ``strict``:
    refuse checkpoints that were captured elsewhere. ``ledger`` is told where sandboxes are.
    """

    name: RuntimeName
    folder: Path
    environment: Mapping[str, str]
    network: Network | None = None
    strict: bool = True
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class ChosenRuntime:
    """An open runtime, the network its sandboxes get, and a sentence about why it was chosen.

    ``rootfs`` is the digest of what its checkpoints are restored on, `ANY_ROOTFS` without images.
    """

    runtime: Runtime
    network: Network
    why: str
    rootfs: str = ANY_ROOTFS


async def choose_runtime(wishes: RuntimeWishes) -> ChosenRuntime:
    """Open the wanted runtime; ``auto`` takes gVisor where it works here, else fork.

    Raises `RuntimeUnavailableError` and `ConfigurationError`, with the remedy. A network that was
    asked for by name is had or refused, never replaced by another.
    """
    if wishes.name == "fork":
        return await _open_fork(wishes, "fork, as asked for")
    if wishes.name == "gvisor":
        return await _open_gvisor(wishes, "gvisor, as asked for")
    try:
        return await _open_gvisor(wishes, "gvisor, because runsc works on this machine")
    except RuntimeUnavailableError as error:
        if wishes.network in ("sandbox", "none"):
            raise
        return await _open_fork(wishes, f"fork, because gvisor cannot be used: {error}")


async def _open_fork(wishes: RuntimeWishes, why: str) -> ChosenRuntime:
    if wishes.network not in (None, "host"):
        raise ConfigurationError(
            f"READIE_NETWORK={wishes.network} cannot be had with the fork runtime, whose sandboxes "
            "are plain processes; set it to host, or use the gvisor runtime"
        )
    runtime = GuardedRuntime(
        ForkRuntime(wishes.folder, environment=wishes.environment, ledger=wishes.ledger)
    )
    await runtime.open()
    return ChosenRuntime(runtime, "host", why)


async def _open_gvisor(wishes: RuntimeWishes, why: str) -> ChosenRuntime:
    network = wishes.network or "sandbox"
    runsc, how = await _trusted_runsc(wishes.folder)
    runtime = GVisorRuntime(
        wishes.folder,
        runsc=runsc,
        network=network,
        environment=wishes.environment,
        ahead=CREATED_AHEAD,
        strict=wishes.strict,
        ledger=wishes.ledger,
    )
    guarded = GuardedRuntime(runtime)
    await guarded.open()
    return ChosenRuntime(guarded, network, f"{why}; {how}", runtime.here.rootfs_digest)


async def _trusted_runsc(folder: Path) -> tuple[Path, str]:
    """A runsc that has run, checkpointed and restored here, and half a sentence that says when.

    Raises `RuntimeUnavailableError`.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise RuntimeUnavailableError("gVisor needs root on Linux")
    found = find_runsc()
    if found is None:
        raise RuntimeUnavailableError(
            "no runsc is on the PATH; install one with infra/gvisor/install"
        )
    runsc = found.resolve()
    try:
        now = await asyncio.to_thread(trials.circumstances, runsc)
        if await asyncio.to_thread(trials.passed_before, folder, now):
            return runsc, "runsc passed its self-test at an earlier start, and nothing has changed"
        await _test(runsc)
        await asyncio.to_thread(trials.note_pass, folder, now)
    except OSError as error:
        raise RuntimeUnavailableError(f"{runsc} cannot be tested: {error}") from error
    return runsc, "runsc has passed its self-test"


async def _test(runsc: Path) -> None:
    """Raises `RuntimeUnavailableError` when it does not pass.

    A process of its own, because it adopts whatever orphans its sandboxes leave.
    """
    command = (sys.executable, "-m", "readie_worker.sandbox.selftest")
    test = await asyncio.create_subprocess_exec(
        *command,
        *("--quick", "--json", "--runsc", str(runsc)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SELF_TEST_DEADLINE_S):
            printed, _ = await test.communicate()
        verdict = json.loads(printed)
    except TimeoutError as error:
        raise RuntimeUnavailableError(
            f"the self-test of {runsc} did not end within {SELF_TEST_DEADLINE_S:g} s"
        ) from error
    except ValueError as error:
        raise RuntimeUnavailableError(f"the self-test of {runsc} gave no verdict") from error
    finally:
        if test.returncode is None:
            test.kill()
            await test.wait()
    if not verdict["ok"]:
        raise RuntimeUnavailableError(str(verdict["reason"]))
