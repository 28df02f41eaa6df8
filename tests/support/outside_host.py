"""Another host, in a network namespace of the test's own, that sandboxes may talk to."""

import contextlib
import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from support.processes import tied

PORT = 8080
AT_ONCE = 32  # runs of the tests on one machine, each with a host of its own

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
    """``address`` answers on ``port`` with the caller's address; ``near`` is this machine's own.

    They are documentation addresses: nobody's. ``address`` is behind ``far``, so that it is in no
    network of this machine.
    """

    number: int
    port: int = PORT

    @property
    def address(self) -> str:
        return f"203.0.113.{self.number + 1}"

    @property
    def near(self) -> str:
        return f"198.51.100.{4 * self.number + 1}"

    @property
    def far(self) -> str:
        return f"198.51.100.{4 * self.number + 2}"

    @property
    def namespace(self) -> str:
        return f"rd-test-outside-{self.number}"

    @property
    def interface(self) -> str:
        return f"outside{self.number}"

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """This machine is in the network of ``address``, which it reaches without a gateway."""
        run("ip", "route", "replace", f"{self.address}/32", "dev", self.interface)
        try:
            yield
        finally:
            run("ip", "route", "replace", f"{self.address}/32", "via", self.far)

    @contextlib.contextmanager
    def name_server(self) -> Iterator[IO[bytes]]:
        """What a name server at ``address`` is sent, a line each."""
        with _serving(self._inside, self.address, _NAME_SERVER) as printed:
            yield printed

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._remove()
        try:
            self._set_up()
            with _serving(self._inside, self.address), _serving((), self.near):
                yield
        finally:
            self._remove()

    @property
    def _inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)

    def _set_up(self) -> None:
        run("ip", "netns", "add", self.namespace)
        peer = ("peer", "name", "eth0", "netns", self.namespace)
        run("ip", "link", "add", self.interface, "type", "veth", *peer)
        run("ip", "addr", "add", f"{self.near}/30", "dev", self.interface)
        run("ip", "link", "set", self.interface, "up")
        inside = ("ip", "-netns", self.namespace)
        run(*inside, "addr", "add", f"{self.far}/30", "dev", "eth0")
        run(*inside, "addr", "add", f"{self.address}/32", "dev", "lo")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")
        run("ip", "route", "add", f"{self.address}/32", "via", self.far)

    def _remove(self) -> None:
        for command in (
            ["ip", "netns", "delete", self.namespace],
            ["ip", "link", "delete", self.interface],
        ):
            subprocess.run(command, check=False, capture_output=True, timeout=20)


@contextlib.contextmanager
def outside_host() -> Iterator[OutsideHost]:
    """One that no other run of the tests on this machine has."""
    with _own_number() as number:
        host = OutsideHost(number)
        with host.running():
            yield host


@contextlib.contextmanager
def _own_number() -> Iterator[int]:
    """The first that nobody holds the lock of; what a run that was killed has left goes with it."""
    for number in range(AT_ONCE):
        with Path(tempfile.gettempdir(), f"rd-test-outside-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    raise AssertionError(f"{AT_ONCE} runs of the tests are under way on this machine")


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
