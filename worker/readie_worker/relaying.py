"""Carries a call's output to its events while it runs, in batches."""

import asyncio
import json
from collections.abc import Callable, Iterable

import structlog

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore, Event
from readie_wire.records import CallRecord
from readie_worker.background import Background
from readie_worker.output import Output, Piece

# A line waits at most this long for company. A call shorter than it sends its output with its end.
FLUSH_S = 0.05
PAUSE_S = 1.0  # after the store could not take a batch; the output's cap bounds what waits

log = structlog.stdlib.get_logger(__name__)


class Relay:
    """Feeds one call's output into the store. ``on_unwanted`` is called when the store says stop.

    With ``live`` false nothing is sent before the end.
    """

    def __init__(
        self,
        store: CallStore,
        background: Background,
        record: CallRecord,
        output: Output,
        *,
        live: bool,
        on_unwanted: Callable[[], None],
    ) -> None:
        self._store = store
        self._background = background
        self._record = record
        self._output = output
        self._live = live
        self._on_unwanted = on_unwanted
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending = asyncio.Lock()
        self._unsent: list[Event] = []
        self._closed = False

    def notice(self) -> None:
        """There may be new output. Cheap: called after every read of a pipe."""
        if self._timer is None and self._live and self._output.waiting and not self._closed:
            self._timer = self._loop.call_later(FLUSH_S, self._flush_soon)

    async def close(self) -> list[Event]:
        """What has not been sent yet, to go with the end of the call. Nothing is sent after it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._sending:
            events, self._unsent = self._unsent, []
            return [*events, *_events(self._output.finish())]

    def _flush_soon(self) -> None:
        self._timer = None
        if not self._closed:
            self._background.run("relaying output", self._flush())

    async def _flush(self) -> None:
        async with self._sending:
            if self._closed:
                return
            self._unsent += _events(self._output.take())
            if not self._unsent:
                return
            record = self._record
            try:
                wanted = await self._store.emit(
                    record.call_id, record.owner, record.attempt, self._unsent
                )
            except StoreUnavailableError as error:
                log.warning("output waits", call=record.call_id, reason=str(error))
                self._timer = self._timer or self._loop.call_later(PAUSE_S, self._flush_soon)
                return
            self._unsent = []
        if not wanted:
            self._on_unwanted()


def _events(pieces: Iterable[Piece]) -> list[Event]:
    return [Event("log", _log_data(piece)) for piece in pieces]


def _log_data(piece: Piece) -> bytes:
    data: dict[str, str | int] = {"stream": piece.stream, "text": piece.text}
    if piece.gap:
        data["gap"] = piece.gap
    return json.dumps(data, separators=(",", ":")).encode("ascii")
