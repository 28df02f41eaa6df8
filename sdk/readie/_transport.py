"""HTTP/1.1 over TCP and TLS, with h11: the one module that knows the HTTP library.

h11 parses and composes and does no I/O, so blocking and asyncio calls share every line; sockets are
tied to no event loop, so they share the connections too.
"""

import os
import socket
import ssl
import time
from collections import deque
from urllib.parse import urlsplit

import h11

from readie._exchange import Broken, Head, Request, Silent, Unreachable
from readie._steps import Receive, Run, Steps, Write

CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 60.0  # for one piece of a body
MAX_IDLE = 64  # connections kept for later
MAX_IDLE_S = 30.0  # most services and proxies hang up on a quiet connection soon after


class HttpTransport:
    """Exchanges with one service. Thread-safe; does not share connections with forked children."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._tls = tls
        self._idle: deque[_Connection] = deque()  # its own operations are atomic
        self._pid = os.getpid()

    def exchange(self, request: Request) -> Steps["_HttpResponse"]:
        if (kept := self._reuse()) is not None:
            try:
                return (yield from self._ask(kept, request))
            except Broken:
                # Services hang up on quiet connections, this one perhaps while the request was on
                # its way; only a fresh connection tells how the service is.
                if kept.heard:
                    raise
        return (yield from self._ask((yield from self._connect()), request))

    def _ask(self, connection: "_Connection", request: Request) -> Steps["_HttpResponse"]:
        try:
            head = yield from connection.send(request, self._path, self._authority)
        except BaseException:
            connection.close()
            raise
        return _HttpResponse(self, connection, head)

    def keep(self, connection: "_Connection") -> None:
        """Take a connection back whose exchange is complete."""
        if len(self._idle) >= MAX_IDLE or self._pid != os.getpid():
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    def _reuse(self) -> "_Connection | None":
        if self._pid != os.getpid():
            self._idle = deque()  # the parent's: closing our copies does not disturb it
            self._pid = os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() - connection.idle_since < MAX_IDLE_S and connection.is_quiet():
                return connection
            connection.close()

    def _connect(self) -> Steps["_Connection"]:
        def connect() -> socket.socket:
            sock = socket.create_connection((self._host, self._port), CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock

        try:
            sock: socket.socket = yield Run(connect)
        except OSError as error:
            raise Unreachable(f"{self._host}:{self._port}: {error}") from error
        if not self._secure:
            return _Connection(sock)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        connection = _Connection(sock, _Tls(self._tls, self._host))
        try:
            yield from connection.handshake()
        except BaseException:
            connection.close()
            raise
        return connection


class _HttpResponse:
    def __init__(self, transport: HttpTransport, connection: "_Connection", head: Head) -> None:
        self.head = head
        self._transport = transport
        self._connection: _Connection | None = connection

    def read(self, patience: float) -> Steps[bytes]:
        connection = self._connection
        if connection is None:
            return b""
        try:
            event = yield from connection.next_event(patience)
        except BaseException:
            self.close()
            raise
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self._connection = None
        if connection.start_next_exchange():
            self._transport.keep(connection)
        else:
            connection.close()
        return b""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    """A socket with the state of its HTTP and of its TLS."""

    def __init__(self, sock: socket.socket, tls: "_Tls | None" = None) -> None:
        self._sock = sock
        self._tls = tls
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self.idle_since = 0.0
        self.heard = False  # whether anything of the answer has come

    def send(self, request: Request, path: str, authority: str) -> Steps[Head]:
        size = sum(map(len, request.body))
        headers = {"Host": authority, **request.headers}
        if request.body or request.method == "POST":
            headers["Content-Length"] = str(size)
        start = self._http.send(
            h11.Request(
                method=request.method, target=path + request.target, headers=list(headers.items())
            )
        )
        try:
            yield from self._send_all(start or b"", request)
        except Broken:
            # A service that refuses a body may hang up in its middle, after saying why.
            head = yield from self._head(request.patience)
            if head.status < 400:
                raise
            return head
        return (yield from self._head(request.patience))

    def _send_all(self, start: bytes, request: Request) -> Steps[None]:
        # A small body goes out in one piece with the head: one packet, one wake-up.
        pending = start
        for piece in request.body:
            data = self._http.send(h11.Data(data=piece)) or b""
            if len(pending) + len(data) <= 1 << 16:
                pending += data
                continue
            yield from self._write(pending)
            pending = data
        self._http.send(h11.EndOfMessage())
        yield from self._write(pending)

    def _head(self, patience: float) -> Steps[Head]:
        while True:
            event = yield from self.next_event(patience)
            if isinstance(event, h11.Response):
                names = (
                    (name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers
                )
                return Head(event.status_code, dict(names))
            if not isinstance(event, h11.InformationalResponse):
                raise Broken("the service hung up without an answer")

    def next_event(self, patience: float) -> Steps[h11.Event]:
        while True:
            try:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    data = yield from self._read(patience)
                    self.heard = self.heard or bool(data)
                    self._http.receive_data(data)
                    continue
            except h11.RemoteProtocolError as error:
                raise Broken(f"the connection ended early or speaks no HTTP: {error}") from error
            if isinstance(event, h11.ConnectionClosed):
                raise Broken("the service hung up")
            if not isinstance(event, h11.Event):
                raise Broken("the service switched to another protocol")
            return event

    def start_next_exchange(self) -> bool:
        """Whether the connection can carry another exchange."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self.heard = False
            return True
        return False

    def is_quiet(self) -> bool:
        """Whether nothing has arrived since the last exchange: not even the end of the stream."""
        try:
            self._sock.setblocking(False)
            self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    def handshake(self) -> Steps[None]:
        if self._tls is None:
            return
        while True:
            try:
                done = self._tls.advance()
            except ssl.SSLError as error:
                raise Unreachable(f"no TLS connection: {error}") from error
            if waiting := self._tls.to_send():
                yield from self._write_raw(waiting)
            if done:
                return
            self._tls.received((yield from self._read_raw(CONNECT_TIMEOUT_S)))

    def close(self) -> None:
        self._sock.close()

    def _write(self, data: bytes) -> Steps[None]:
        yield from self._write_raw(data if self._tls is None else self._tls.encrypt(data))

    def _write_raw(self, data: bytes) -> Steps[None]:
        try:
            yield Write(self._sock, data, WRITE_TIMEOUT_S)
        except TimeoutError as error:
            raise Silent("the service does not read what is sent") from error
        except OSError as error:
            raise Broken(f"the connection was lost: {error}") from error

    def _read(self, patience: float) -> Steps[bytes]:
        if self._tls is None:
            return (yield from self._read_raw(patience))
        while (plain := self._tls.decrypt()) is None:
            self._tls.received((yield from self._read_raw(patience)))
        return plain

    def _read_raw(self, patience: float) -> Steps[bytes]:
        try:
            data: bytes = yield Receive(self._sock, patience)
        except TimeoutError as error:
            raise Silent(f"nothing came for {patience:g} s") from error
        except OSError as error:
            raise Broken(f"the connection was lost: {error}") from error
        return data


class _Tls:
    """TLS between two buffers in memory, so that the same sockets serve both drivers."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def advance(self) -> bool:
        """One step of the handshake; True when it is done."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def to_send(self) -> bytes:
        return self._outgoing.read()

    def received(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def encrypt(self, data: bytes) -> bytes:
        if data:
            self._object.write(data)
        return self._outgoing.read()

    def decrypt(self) -> bytes | None:
        """Plain bytes, empty at the end of the stream; None when more has to be received."""
        try:
            return self._object.read(1 << 18)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError as error:
            raise Broken(f"the TLS connection was lost: {error}") from error
