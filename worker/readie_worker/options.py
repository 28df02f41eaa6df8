"""The options of a call as the worker uses them. A gateway has validated them and filled them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from readie_wire.outcome import ErrorInfo, ErrorKind
from readie_wire.records import CallRecord
from readie_worker.errors import CallRefusedError
from readie_worker.sandbox.api import Limits, Network

_DEFAULT_TIMEOUT_S = 3_600.0
_DEFAULT_MEMORY = 1 << 30
DEFAULT_RESULT_TTL_S = 3_600.0


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Times in seconds, memory in bytes. ``network`` None means what the worker offers."""

    timeout: float
    memory: int
    max_memory: int  # 0: as far as the worker's own goes
    cpus: float
    network: Network | None
    environment: Mapping[str, str]
    disable_optimized_execution: bool
    result_ttl: float
    stream_logs: bool

    @classmethod
    def of(cls, record: CallRecord) -> "CallOptions":
        """Raises `CallRefusedError` for a record that no gateway of ours wrote."""
        given = record.options
        try:
            return cls(
                timeout=float(given.get("timeout") or _DEFAULT_TIMEOUT_S),
                memory=memory_of(record),
                max_memory=int(given.get("max_memory") or 0),
                cpus=float(given.get("cpu") or 0.0),
                network=_network(given.get("network")),
                environment={str(k): str(v) for k, v in (given.get("env") or {}).items()},
                disable_optimized_execution=bool(given.get("disable_optimized_execution")),
                result_ttl=float(given.get("result_ttl") or DEFAULT_RESULT_TTL_S),
                stream_logs=bool(given.get("stream_logs", True)),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise CallRefusedError(
                ErrorInfo(
                    kind=ErrorKind.INVALID_REQUEST,
                    type="readie.InvalidRequestError",
                    message=f"the options of the call cannot be read: {error}",
                )
            ) from error

    @property
    def limits(self) -> Limits:
        """Those that its sandbox starts with."""
        return Limits(memory=self.memory, max_memory=self.max_memory, cpus=self.cpus)


def memory_of(record: CallRecord) -> int:
    """Bytes the call may use, which it holds of the worker's memory while it is here."""
    memory = record.options.get("memory")
    return memory if isinstance(memory, int) and memory > 0 else _DEFAULT_MEMORY


def _network(value: Any) -> Network | None:
    if value is None:
        return None
    if value == "none":
        return "none"
    if value == "sandbox":
        return "sandbox"
    raise ValueError(f"network is {value!r}")
