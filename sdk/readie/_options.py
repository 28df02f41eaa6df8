"""The options of a call: checked by name before anything is sent; their values, by the service."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from readie._errors import ConfigurationError

if TYPE_CHECKING:
    from readie._client import Client


class OpenSession(Protocol):
    """What `readie.Session` is to a call of it."""

    @property
    def id(self) -> str: ...
    @property
    def client(self) -> "Client": ...


class SandboxOptions(TypedDict, total=False):
    """Options of a sandbox: of a call, or of a session for all its calls."""

    memory: int | str
    max_memory: int | str
    gpu: bool
    gpu_memory: int | str
    max_gpu_memory: int | str
    cpu: float
    network: Literal["sandbox", "none"]
    checkpoint_id: str
    disable_optimized_execution: bool
    flavor: Literal["cpu", "gpu"]


class Options(SandboxOptions, total=False):
    """Times in seconds; sizes in bytes or as ``"512Mi"``, ``"2G"``."""

    timeout: float
    queue_timeout: float
    packages: list[str]
    env: dict[str, str]
    secrets: dict[str, str]
    session: str | OpenSession
    retries: int
    idempotent: bool
    priority: int
    result_ttl: float
    stream_logs: bool


NAMES = tuple(Options.__annotations__)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without those that are None. Raises `ConfigurationError` for a name nobody knows."""
    for name in options:
        if name not in Options.__annotations__:
            nearest = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(NAMES)}"
            raise ConfigurationError(f"unknown option {name!r}; {hint}")
    for name in ("timeout", "queue_timeout", "result_ttl"):
        value = options.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConfigurationError(f"{name} must be a number of seconds, not {value!r}")
    return {name: value for name, value in options.items() if value is not None}
