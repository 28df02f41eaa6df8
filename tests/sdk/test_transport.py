"""HTTP over real sockets: reuse, refusals, broken peers, TLS, both drivers, threads and forks."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from readie._exchange import Broken, Request, Silent, Unreachable, read_all
from readie._steps import Steps, drive, drive_async
from readie._transport import HttpTransport

LIMIT = 64 << 20


class Handler(BaseHTTPRequestHandler):
    """Echoes bodies, in chunks; counts connections; refuses early and misbehaves by path."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1  # type: ignore[attr-defined]
        self.served = 0

    def do_POST(self) -> None:
        if self.path == "/early":
            self.send_response(413)
            self.send_header("Content-Length", "5")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"large")
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), 1 << 16):
            piece = body[start : start + (1 << 16)]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        self.served += 1
        if self.path == "/silent-goodbye" and self.served > 1:
            self.close_connection = True
            return
        if self.path == "/hang-up":
            self.close_connection = True
            return
        if self.path == "/hang":
            self.server.released.wait(30)  # type: ignore[attr-defined]
            self.close_connection = True
            return
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
        if self.path == "/goodbye":
            self.close_connection = True

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of five, a burst of connections waits for seconds
    connections = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.released = threading.Event()

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is part of these tests."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def transport(server: Server) -> Iterator[HttpTransport]:
    made = HttpTransport(f"http://127.0.0.1:{server.server_address[1]}")
    yield made
    made.close()


def fetch(
    transport: HttpTransport, request: Request, patience: float = 20.0
) -> Steps[tuple[int, bytes]]:
    response = yield from transport.exchange(request)
    try:
        return response.head.status, (yield from read_all(response, patience, LIMIT))
    finally:
        response.close()


Driver = Callable[[Steps[tuple[int, bytes]]], tuple[int, bytes]]


def drive_in_a_loop(steps: Steps[tuple[int, bytes]]) -> tuple[int, bytes]:
    return asyncio.run(drive_async(steps))


both_drivers = pytest.mark.parametrize("driver", [drive, drive_in_a_loop])


@both_drivers
def test_bodies_of_any_size_arrive_and_come_back(transport: HttpTransport, driver: Driver) -> None:
    for size in (0, 1, 70_000, 5_000_000):
        body = os.urandom(size)
        pieces = tuple(body[at : at + 1_000_000] for at in range(0, size, 1_000_000))
        assert driver(fetch(transport, Request("POST", "/echo", {}, pieces))) == (200, body)


def test_blocking_calls_and_event_loops_share_one_connection(
    server: Server, transport: HttpTransport
) -> None:
    for driver in (drive, drive_in_a_loop, drive, drive_in_a_loop):
        assert driver(fetch(transport, Request("GET", "/"))) == (200, b"ok")
    assert server.connections == 1


def test_a_connection_that_the_service_closed_is_not_used_again(
    server: Server, transport: HttpTransport
) -> None:
    for _ in range(3):
        assert drive(fetch(transport, Request("GET", "/goodbye"))) == (200, b"ok")
    assert server.connections == 3


def test_a_service_that_hangs_up_on_a_kept_connection_is_asked_again_on_a_fresh_one(
    server: Server, transport: HttpTransport
) -> None:
    for _ in range(3):
        assert drive(fetch(transport, Request("GET", "/silent-goodbye"))) == (200, b"ok")
    assert server.connections == 3


def test_a_service_that_hangs_up_on_a_fresh_connection_is_broken(
    server: Server, transport: HttpTransport
) -> None:
    with pytest.raises(Broken):
        drive(fetch(transport, Request("GET", "/hang-up")))
    assert server.connections == 1


def test_an_answer_that_breaks_off_on_a_kept_connection_is_not_asked_for_again(
    server: Server, transport: HttpTransport
) -> None:
    drive(fetch(transport, Request("GET", "/")))
    with pytest.raises(Broken):
        drive(fetch(transport, Request("GET", "/cut")))
    assert server.connections == 1


def test_a_response_left_unread_is_not_mixed_with_the_next_one(
    server: Server, transport: HttpTransport
) -> None:
    drive(transport.exchange(Request("GET", "/"))).close()
    assert drive(fetch(transport, Request("GET", "/"))) == (200, b"ok")
    assert server.connections == 2


@both_drivers
def test_a_refusal_in_the_middle_of_a_body_is_read(
    transport: HttpTransport, driver: Driver
) -> None:
    body = tuple(bytes(1 << 20) for _ in range(40))
    # The kernel may throw the answer away with the connection; then it is asked for again.
    with contextlib.suppress(Broken):
        assert driver(fetch(transport, Request("POST", "/early", {}, body))) == (413, b"large")


@both_drivers
def test_silence_ends_after_the_patience_of_the_request(
    transport: HttpTransport, driver: Driver
) -> None:
    with pytest.raises(Silent):
        driver(fetch(transport, Request("GET", "/hang", patience=0.05)))


@both_drivers
def test_an_answer_that_is_cut_short_is_broken_and_not_complete(
    transport: HttpTransport, driver: Driver
) -> None:
    with pytest.raises(Broken):
        driver(fetch(transport, Request("GET", "/cut")))


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = HttpTransport(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            drive(fetch(transport, Request("GET", "/")))


def test_a_peer_that_speaks_no_http_is_broken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"-ERR unknown command\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        transport = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Broken):
            drive(fetch(transport, Request("GET", "/")))
        thread.join()


def test_an_endless_answer_is_cut_at_the_limit(transport: HttpTransport) -> None:
    def too_much() -> Steps[bytes]:
        request = Request("POST", "/echo", {}, (bytes(1000),))
        response = yield from transport.exchange(request)
        try:
            return (yield from read_all(response, 5.0, 999))
        finally:
            response.close()

    with pytest.raises(Broken, match="999 bytes"):
        drive(too_much())


def test_threads_and_tasks_use_it_at_once(transport: HttpTransport) -> None:
    def one(number: int) -> bytes:
        body = str(number).encode() * 1000
        return drive(fetch(transport, Request("POST", "/echo", {}, (body,))))[1][:4]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(1000, 1040))) == [b"%d" % n for n in range(1000, 1040)]

    async def many() -> list[tuple[int, bytes]]:
        request = Request("GET", "/")
        return await asyncio.gather(*(drive_async(fetch(transport, request)) for _ in range(40)))

    assert asyncio.run(many()) == [(200, b"ok")] * 40


def test_a_forked_child_does_not_use_its_parents_connections(
    server: Server, transport: HttpTransport
) -> None:
    drive(fetch(transport, Request("GET", "/")))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if drive(fetch(transport, Request("GET", "/")))[1] == b"ok" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    drive(fetch(transport, Request("GET", "/")))
    assert server.connections == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "service.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


@pytest.fixture
def secure_server(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Server()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as running:
        yield running


@both_drivers
def test_tls_carries_large_bodies(secure_server: Server, certificate: Path, driver: Driver) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    transport = HttpTransport(f"https://127.0.0.1:{secure_server.server_address[1]}", trusting)
    body = os.urandom(3_000_000)
    pieces = tuple(body[at : at + 1_000_000] for at in range(0, len(body), 1_000_000))
    for _ in range(2):
        assert driver(fetch(transport, Request("POST", "/echo", {}, pieces))) == (200, body)
    assert secure_server.connections == 1
    transport.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(secure_server: Server) -> None:
    transport = HttpTransport(f"https://127.0.0.1:{secure_server.server_address[1]}")
    with pytest.raises(Unreachable, match="TLS"):
        drive(fetch(transport, Request("GET", "/")))
