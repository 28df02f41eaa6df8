"""Another host, in a network namespace of the test's own, that sandboxes may talk to."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from support.processes import tied

# Documentation addresses: nobody's. The second is behind the first, so not a network of this host.
LINK_HERE, LINK_THERE = "198.51.100.1", "198.51.100.2"
ADDRESS = "203.0.113.5"
PORT = 8080
_NAMESPACE = "rd-test-outside"
_INSIDE = ("ip", "netns", "exec", _NAMESPACE)
INTERFACE = "outside0"

# Prints what it is asked, and answers nothing.
_NAME_SERVER = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print("ready", flush=True)
while True:
    print(server.recv(1000).decode(), flush=True)
"""

# Answers every connection with the address it came from.
_SERVER = f"""
import socket, sys, threading
server = socket.create_server((sys.argv[1], {PORT}))
print("ready", flush=True)
while True:
    connection, peer = server.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""


@dataclass(frozen=True)
class OutsideHost:
    """``address`` answers on ``port`` with the caller's address; ``near`` is this machine's own."""

    address: str = ADDRESS
    near: str = LINK_HERE
    port: int = PORT

    @contextlib.contextmanager
    def name_server(self) -> Iterator[IO[bytes]]:
        """What a name server at ``address`` is sent, a line each."""
        with _serving(_INSIDE, self.address, _NAME_SERVER) as printed:
            yield printed


@contextlib.contextmanager
def outside_host() -> Iterator[OutsideHost]:
    _remove()
    run("ip", "netns", "add", _NAMESPACE)
    try:
        run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "eth0", "netns", _NAMESPACE)
        run("ip", "addr", "add", f"{LINK_HERE}/24", "dev", INTERFACE)
        run("ip", "link", "set", INTERFACE, "up")
        inside = ("ip", "-netns", _NAMESPACE)
        run(*inside, "addr", "add", f"{LINK_THERE}/24", "dev", "eth0")
        run(*inside, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")
        run("ip", "route", "add", f"{ADDRESS}/32", "via", LINK_THERE)
        with (
            _serving(_INSIDE, ADDRESS),
            _serving((), LINK_HERE),
        ):
            yield OutsideHost()
    finally:
        _remove()


@contextlib.contextmanager
def _serving(prefix: tuple[str, ...], address: str, program: str = _SERVER) -> Iterator[IO[bytes]]:
    command = tied(*prefix, sys.executable, "-c", program, address)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield server.stdout
        finally:
            server.kill()


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


def _remove() -> None:
    for command in (["ip", "netns", "delete", _NAMESPACE], ["ip", "link", "delete", INTERFACE]):
        subprocess.run(command, check=False, capture_output=True, timeout=20)
