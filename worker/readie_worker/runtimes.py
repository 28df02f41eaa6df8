"""Which sandbox runtime this worker uses, and why. The one place that knows them by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from readie_worker.errors import ConfigurationError
from readie_worker.sandbox.api import Network, Runtime
from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.guarded import GuardedRuntime

RuntimeName = Literal["auto", "gvisor", "fork"]


@dataclass(frozen=True, slots=True)
class ChosenRuntime:
    """An open runtime, the network its sandboxes get, and a sentence about why it was chosen."""

    runtime: Runtime
    network: Network
    why: str


async def choose_runtime(
    wanted: RuntimeName,
    network: Network | None,
    folder: Path,
    environment: Mapping[str, str],
) -> ChosenRuntime:
    """Open the wanted runtime, or the best one that works here.

    ``environment`` is the worker's own, of which a runtime passes on very little. Raises
    `RuntimeUnavailableError` and `ConfigurationError`, with the remedy.
    """
    if wanted == "gvisor":
        raise RuntimeUnavailableError("gvisor cannot be chosen yet; set READIE_RUNTIME=fork")
    if network not in (None, "host"):
        raise ConfigurationError(
            f"READIE_NETWORK={network} cannot be had with the fork runtime, whose sandboxes are "
            "plain processes; set it to host, or use the gvisor runtime"
        )
    runtime = GuardedRuntime(ForkRuntime(folder, environment=environment))
    await runtime.open()
    why = "it was asked for" if wanted == "fork" else "it works on every machine"
    return ChosenRuntime(runtime, "host", f"fork: {why}")
