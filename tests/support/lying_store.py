"""A proxy in front of a real S3 server that spoils what is read through it."""

import base64
import http.client
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zlib import crc32

LOST_BYTES = 3_963


class Lie(Enum):
    """What happens to the answer of a GET of an object."""

    BREAKS = "the connection breaks before the last bytes"
    CUT_SHORT = "the last bytes are missing, and the stated length agrees"
    ZERO_FILLED = "a part in the middle is zeros"
    FAILS = "the server answers 500"
    NO_VERSION = "the header with the object's version is missing"
    ODD_CHECKSUM = "a checksum of other bytes than those of the answer"


@dataclass
class LyingStore:
    """``url`` is what clients are given. ``lies`` happen to the next answers, the last for ever."""

    url: str
    lies: list[Lie | None] = field(default_factory=list)
    told: int = 0  # answers spoilt so far
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the two above

    def tell(self, *lies: Lie | None) -> None:
        with self.lock:
            self.lies = list(lies)

    def next_lie(self) -> Lie | None:
        with self.lock:
            if not self.lies:
                return None
            lie = self.lies[0] if len(self.lies) == 1 else self.lies.pop(0)
            self.told += lie is not None
            return lie


@contextmanager
def lying_store(port: int, tls: ssl.SSLContext | None = None) -> Iterator[LyingStore]:
    """Forwards to the S3 server at ``port``; tells the truth until it is told otherwise.

    With ``tls`` it is spoken to by https.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    store = LyingStore(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = _handler(store, port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(store: LyingStore, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            status, headers, body = _ask(port, self)
            about_an_object = self.command == "GET" and "/objects/" in self.path
            lie = store.next_lie() if about_an_object and status in (200, 206) else None
            _answer(self, status, headers, body, lie)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Quietly."""

    return Handler


def _ask(
    port: int, request: BaseHTTPRequestHandler
) -> tuple[int, Sequence[tuple[str, str]], bytes]:
    size = int(request.headers.get("Content-Length", 0))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        # The name of the host is signed, so it goes on as it came.
        headers = dict(request.headers.items())
        connection.request(request.command, request.path, request.rfile.read(size), headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def _answer(
    to: BaseHTTPRequestHandler,
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    lie: Lie | None,
) -> None:
    sent = body
    if lie in (Lie.BREAKS, Lie.CUT_SHORT):
        sent = body[:-LOST_BYTES]
    elif lie is Lie.ZERO_FILLED:
        third = len(body) // 3
        sent = body[:third] + bytes(third) + body[2 * third :]
    elif lie is Lie.FAILS:
        status, headers, sent = 500, [], b""
    to.send_response(status)
    for name, value in headers:
        if name.lower() == "etag" and lie is Lie.NO_VERSION:
            continue
        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
            to.send_header(name, value)
    stated = {name.lower(): value for name, value in headers}.get("content-length")
    if to.command == "HEAD":
        to.send_header("Content-Length", stated or "0")
    else:
        to.send_header("Content-Length", str(len(body if lie is Lie.BREAKS else sent)))
    if lie is Lie.ODD_CHECKSUM:
        odd = base64.b64encode(crc32(body + b"more").to_bytes(4, "big")).decode()
        to.send_header("x-amz-checksum-crc32", odd)
    to.end_headers()
    to.wfile.write(sent)
    if lie is Lie.BREAKS:
        to.close_connection = True
