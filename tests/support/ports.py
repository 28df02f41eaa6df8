"""Ports for the servers of tests: nobody else takes them between the choice and the listening."""

import secrets
import socket
from collections.abc import Iterable

# Below what systems lend to outgoing connections, which come and go beside a test.
LOWEST, HIGHEST = 10_000, 31_999
TRIES = 1_000  # more that are taken in a row is no chance

_given: set[int] = set()


def free_port(beside: Iterable[int] = ()) -> int:
    """One that this test run has given to nobody, a stopped server included, and that is free now.

    So are those that lie ``beside`` it, by so much above it.
    """
    distances = (0, *beside)
    for _ in range(TRIES):
        first = LOWEST + secrets.randbelow(HIGHEST + 1 - LOWEST - max(distances))
        ports = {first + distance for distance in distances}
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return first
    raise AssertionError(f"no port from {LOWEST} to {HIGHEST} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
