"""A call that was started without waiting for it."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from readie._errors import LogLine, ReadieError
from readie._loops import refuse_in_coroutine

if TYPE_CHECKING:  # network code is loaded by the first call, not by `import readie`
    from readie._service import Ended, Progress, Service
    from readie._steps import Steps
    from readie_wire.outcome import Receipt

R = TypeVar("R")


class Call(Generic[R]):
    """A handle. It may be dropped: the call goes on, and its result is kept for ``result_ttl``."""

    def __init__(self, service: "Service", progress: "Progress") -> None:
        self._service = service
        self._progress = progress
        self._ended: Ended | None = None

    @property
    def id(self) -> str:
        """What the service knows the call by; see `Client.call`."""
        return self._progress.call_id

    @property
    def logs(self) -> Sequence[LogLine]:
        """What the call has printed, as far as it was seen by ``get``."""
        return tuple(self._progress.logs)

    @property
    def receipt(self) -> "Receipt | None":
        """What the call was given and what it cost; None before ``get`` saw its end."""
        return self._ended.outcome.receipt if self._ended is not None else None

    def get(self, timeout: float | None = None) -> R:
        """Wait for the result, showing on stderr what the call prints.

        Raises what the function raised; `StillRunningError` after ``timeout`` seconds;
        `ResultExpiredError` when the result is no longer kept.
        """
        from readie._steps import drive

        refuse_in_coroutine("call.get()", "await call.aget()")
        return self._value(drive(self._end(timeout)))

    async def aget(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as `get`
        """As `get`, for coroutines."""
        from readie._steps import drive_async

        return self._value(await drive_async(self._end(timeout)))

    def cancel(self) -> None:
        """End the call. One that has ended is left as it is."""
        from readie._steps import drive

        refuse_in_coroutine("call.cancel()", "await call.acancel()")
        drive(self._service.cancel(self.id))

    async def acancel(self) -> None:
        """As `cancel`, for coroutines."""
        from readie._steps import drive_async

        await drive_async(self._service.cancel(self.id))

    def __repr__(self) -> str:
        state = "pending" if self._ended is None else "ended"
        return f"<readie.Call {self.id} {state}>"

    def _end(self, timeout: float | None) -> "Steps[Ended]":
        if self._ended is None:
            deadline = None if timeout is None else time.monotonic() + timeout
            self._ended = yield from self._service.follow(self._progress, deadline)
        return self._ended

    def _value(self, ended: "Ended") -> R:
        from readie._results import value_of

        try:
            value: Any = value_of(ended, self._progress.logs)
        except ReadieError as error:
            error.logs = error.logs or tuple(self._progress.logs)
            raise
        return cast(R, value)
