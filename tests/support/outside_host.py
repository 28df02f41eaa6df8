"""Another host, in a network namespace of the test's own, that sandboxes may talk to."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from support.processes import tied

# Documentation addresses: nobody's. The second is behind the first, so not a network of this host.
LINK_HERE, LINK_THERE = "198.51.100.1", "198.51.100.2"
ADDRESS = "203.0.113.5"
PORT = 8080
_NAMESPACE = "rd-test-outside"
INTERFACE = "outside0"

# Answers every connection with the address it came from; and UDP on port 53 as a name server would.
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
            _serving(("ip", "netns", "exec", _NAMESPACE), ADDRESS),
            _serving((), LINK_HERE),
        ):
            yield OutsideHost()
    finally:
        _remove()


@contextlib.contextmanager
def _serving(prefix: tuple[str, ...], address: str) -> Iterator[None]:
    command = tied(*prefix, sys.executable, "-c", _SERVER, address)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.kill()


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


def _remove() -> None:
    for command in (["ip", "netns", "delete", _NAMESPACE], ["ip", "link", "delete", INTERFACE]):
        subprocess.run(command, check=False, capture_output=True, timeout=20)
