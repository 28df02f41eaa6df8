"""A gateway on a real socket in the test's own event loop, and a worker that only plays its part."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from readie_gateway.app import create_app
from readie_gateway.auth import Tokens
from readie_gateway.bucket_view import BucketView
from readie_gateway.catalogues import Catalogues
from readie_gateway.fleet import FleetWatch
from readie_gateway.metrics import Metrics
from readie_gateway.published import PublishedCatalogues
from readie_gateway.recording import ImportLedger
from readie_gateway.services import Limits, Services
from readie_gateway.serving import GatewayServer, address, listen
from readie_gateway.sessions import SessionBook
from readie_gateway.waiting import WaitingBoard
from readie_infra.blobs import DirectoryBlobs
from readie_infra.connecting import connect
from readie_infra.objects import ObjectStore
from readie_infra.store import CallStore, Event, Offer
from readie_infra.store import Limits as StoreLimits
from readie_wire.keys import new_boot_id
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt
from readie_wire.records import CallRecord, GenerationFacts, WorkerRecord
from support import http_client
from support.http_client import Answer

TOKEN = "a-token-for-the-tests"
OTHER_TOKEN = "another-token-for-the-tests"
LONG_S = 3_600.0
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Gateway:
    """A running gateway: ``url`` to talk to, ``services`` to look inside."""

    url: str
    services: Services
    server: GatewayServer

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **given: Any
    ) -> Answer:
        merged = {**AUTHORIZED, **(headers or {})}
        return await http_client.request(self.url, method, path, headers=merged, **given)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, headers=_dashed(headers))

    async def invoke(self, value: Any, **headers: str) -> Answer:
        """`POST /v1/invoke` with a JSON body; header names with ``_`` for ``-``."""
        given = {"Content-Type": "application/json", **_dashed(headers)}
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return await self.request("POST", "/v1/invoke", headers=given, body=body)

    def invoking(self, value: Any, **headers: str) -> Any:
        """The same, to read the answer as it comes."""
        given = {**AUTHORIZED, "Content-Type": "application/json", **_dashed(headers)}
        return http_client.opened(
            self.url, "POST", "/v1/invoke", headers=given, body=json.dumps(value).encode()
        )


@asynccontextmanager
async def running_gateway(
    redis_url: str,
    folder: Path,
    *,
    limits: Limits | None = None,
    catalogues: Path | None = None,
    generations: Path | None = None,
    bucket: ObjectStore | None = None,
    abandon_grace_s: float = 0.5,
    record_imports_days: int = 0,
) -> AsyncIterator[Gateway]:
    """A gateway that ends with the block. Blobs are in ``folder``."""
    # Workers that are played beat once: nobody buries them, however long a test takes.
    store = CallStore(connect(redis_url), limits=StoreLimits(silence_s=LONG_S))
    published = PublishedCatalogues(bucket) if bucket else None
    view = BucketView(bucket) if bucket else None
    loaded = Catalogues(generations=generations, folder=catalogues, published=published)
    services = Services(
        store=store,
        blobs=DirectoryBlobs(folder / "blobs"),
        catalogues=loaded,
        fleet=FleetWatch(store, loaded, view),
        board=WaitingBoard(store, new_boot_id("gateway"), abandon_grace_s=abandon_grace_s),
        metrics=Metrics(),
        limits=limits or Limits(),
        sessions=SessionBook(store),
        bucket=view,
        imports=ImportLedger(store, record_imports_days) if record_imports_days else None,
    )
    listener = listen("127.0.0.1", 0)
    tokens = Tokens({TOKEN: "tests", OTHER_TOKEN: "others"})
    server = GatewayServer(create_app(services, tokens), services.board)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(30):
            while not server.started:
                assert not serving.done(), "the gateway did not start"
                await asyncio.sleep(0.01)
        yield Gateway(address(listener), services, server)
    finally:
        server.should_exit = True
        await serving


Handler = Callable[["PlayedWorker", CallRecord], Awaitable[None]]


class PlayedWorker:
    """Takes calls from the store and lets ``handle`` end them; no sandbox, no function is run."""

    def __init__(self, store: CallStore, handle: Handler, **record: Any) -> None:
        self.store = store
        self.handle = handle
        self.taken: list[CallRecord] = []
        self.record = replace(DEFAULT_RECORD, boot=new_boot_id("worker"), **record)

    async def run(self) -> None:
        offer = Offer(
            worker=self.record.boot,
            flavor=self.record.flavor,
            slots=1,
            memory_free=self.record.memory_free,
            exposed_ok=True,
        )
        while True:
            call = await self.store.take(offer)
            if call is None:
                await asyncio.sleep(0.01)
                continue
            self.taken.append(call)
            if call.state is State.LEASED:
                await self.store.start(call.call_id, self.record.boot, call.attempt, 60.0)
            await self.handle(self, call)

    async def log(self, call: CallRecord, text: str, stream: str = "stdout") -> bool:
        data = json.dumps({"stream": stream, "text": text}).encode()
        return await self.store.emit(
            call.call_id, self.record.boot, call.attempt, [Event("log", data)]
        )

    async def succeed(
        self, call: CallRecord, result: bytes, encoding: Encoding = Encoding.JSON, blob: str = ""
    ) -> bool:
        outcome = Outcome(
            ok=True, receipt=Receipt(call.call_id), encoding=encoding, size=len(result)
        )
        return await self._finish(call, State.SUCCEEDED, outcome, b"" if blob else result, blob)

    async def fail(self, call: CallRecord, error: ErrorInfo) -> bool:
        outcome = Outcome(ok=False, receipt=Receipt(call.call_id), error=error)
        return await self._finish(call, State.FAILED, outcome, b"", "")

    async def _finish(
        self, call: CallRecord, state: State, outcome: Outcome, result: bytes, blob: str
    ) -> bool:
        return await self.store.finish(
            call.call_id,
            self.record.boot,
            call.attempt,
            state,
            outcome,
            result,
            blob,
            float(call.options["result_ttl"]),
        )


DEFAULT_RECORD = WorkerRecord(
    boot="",
    flavor="cpu",
    runtime="fork",
    isolation="none",
    python="3.11.7",
    protocol=3,
    slots=1,
    free_slots=1,
    memory_total=4 << 30,
    memory_free=4 << 30,
)


@asynccontextmanager
async def played_worker(
    gateway: Gateway, handle: Handler, **record: Any
) -> AsyncIterator[PlayedWorker]:
    """A worker that the gateway knows of, until the block ends."""
    worker = PlayedWorker(gateway.services.store, handle, **record)
    await worker.store.beat(worker.record, LONG_S)
    await gateway.services.fleet.refresh()
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await worker.store.leave(worker.record.boot)


def fork_generation(sha256: str, *checkpoints: str, **facts: Any) -> Sequence[GenerationFacts]:
    """One generation as a worker advertises it."""
    given = {"python": "3.11.7", "runtime": "fork", **facts}
    return (
        GenerationFacts(
            generation="20260101T000000-0123abcd",
            catalogue_sha256=sha256,
            checkpoints=checkpoints,
            **given,
        ),
    )


def raised(message: str) -> ErrorInfo:
    return ErrorInfo(ErrorKind.EXCEPTION, "ValueError", message, traceback="Traceback …")


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
