"""The gateway's part in a call's life, played by a test that talks to the store directly."""

import asyncio
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from readie_infra.blobs import BlobStore
from readie_infra.store import CallStore, Snapshot, StoredEvent
from readie_wire.envelope import CallKind
from readie_wire.keys import new_boot_id, new_call_id
from readie_wire.lifecycle import TERMINAL, State
from readie_wire.outcome import ErrorInfo, Receipt
from readie_wire.records import CallRecord, Choice
from readie_wire.versions import python_minor

SURELY = 60.0  # seconds; only a hang meets it


@dataclass
class Ended:
    """A call after its end, as a gateway reads it."""

    snapshot: Snapshot
    body: bytes

    @property
    def state(self) -> State:
        return self.snapshot.record.state

    @property
    def receipt(self) -> Receipt:
        assert self.snapshot.record.outcome is not None
        return self.snapshot.record.outcome.receipt

    @property
    def error(self) -> ErrorInfo:
        outcome = self.snapshot.record.outcome
        assert outcome is not None
        assert outcome.error is not None, outcome
        return outcome.error

    @property
    def value(self) -> Any:
        assert self.state is State.SUCCEEDED, self.error
        return pickle.loads(self.body)

    @property
    def stdout(self) -> str:
        return text_of(self.snapshot.events, "stdout")

    @property
    def stderr(self) -> str:
        return text_of(self.snapshot.events, "stderr")


def text_of(events: Sequence[StoredEvent], stream: str) -> str:
    logs = [json.loads(event.data) for event in events if event.type == "log"]
    return "".join(log["text"] for log in logs if log["stream"] == stream)


@dataclass
class Caller:
    """Enqueues calls as a gateway would, and waits for their ends."""

    store: CallStore
    blobs: BlobStore
    name: str = field(default_factory=lambda: new_boot_id("gateway"))

    def record(
        self, function: Callable[..., Any], *args: Any, choice: Choice | None = None, **options: Any
    ) -> CallRecord:
        """A call as a gateway writes it; ``options`` are those of the call."""
        return CallRecord(
            call_id=new_call_id(),
            state=State.QUEUED,
            token="default",
            flavor="cpu",
            kind=CallKind.PICKLE,
            function=getattr(function, "__name__", "function"),
            python=python_minor(),
            choice=choice or Choice(),
            options={"timeout": SURELY, "memory": 1 << 30, **options},
            payload=cloudpickle.dumps({"func": function, "args": args, "kwargs": {}}),
        )

    async def spawn(
        self, function: Callable[..., Any], *args: Any, choice: Choice | None = None, **options: Any
    ) -> str:
        return await self.enqueue(self.record(function, *args, choice=choice, **options))

    async def enqueue(self, record: CallRecord) -> str:
        await self.store.enqueue(
            record, idempotency=None, queue_timeout=SURELY, gateway=self.name, queue_limit=1000
        )
        return record.call_id

    async def end_of(self, call_id: str) -> Ended:
        snapshot = await self.until(call_id, lambda snapshot: snapshot.record.state in TERMINAL)
        record = snapshot.record
        body = await self.blobs.get(record.result_blob) if record.result_blob else record.result
        return Ended(snapshot, body)

    async def until(self, call_id: str, true: Callable[[Snapshot], bool]) -> Snapshot:
        """Look at the call whenever its doorbell rings, until ``true`` of it."""
        last = "0-0"
        async with asyncio.timeout(SURELY):
            while True:
                snapshot = await self.store.read(call_id)
                assert snapshot is not None
                if true(snapshot):
                    return snapshot
                last, _ = await self.store.doorbells(self.name, last, 1.0)

    async def call(
        self, function: Callable[..., Any], *args: Any, choice: Choice | None = None, **options: Any
    ) -> Ended:
        return await self.end_of(await self.spawn(function, *args, choice=choice, **options))


async def until(true: Callable[[], Any]) -> None:
    """For what announces itself to nobody: the state of a process, what a worker holds."""
    async with asyncio.timeout(SURELY):
        while not true():
            await asyncio.sleep(0.01)
