"""``python -m readie_executor``: what runs in a sandbox, in one of its modes.

It is told by environment variables, which no function ever sees:

EXECUTOR_MODE      ``sandbox``, ``zygote``, ``capture`` or ``measure``
READIE_CONNECTION  ``fd:N``, an inherited connected socket, or ``unix:/path`` to connect to
READIE_PREIMPORT   module names to import ahead, comma-separated, in this order
READIE_CHECKPOINT  key of the checkpoint, for HELLO
READIE_FOLDER      the sandbox's private folder; made when it does not exist
READIE_RUN_DIR     read-only folder with ``executor.sock`` and, after a restore, ``ticket.json``
"""

import os
import socket
import sys
from collections.abc import Mapping

from readie_executor import output
from readie_executor.channel import Channel, ConnectionEndedError
from readie_executor.environment import Surroundings, inherited
from readie_executor.serving import Greeting, serve

CONNECT_DEADLINE_S = 10.0  # the worker listens before it starts a sandbox
REFUSED_EXIT = 3  # a capture that must not be saved; stdout says why


def main(environment: Mapping[str, str]) -> int:
    """Run the mode; the process's exit code. In a forked clone this returns as well."""
    modes = {"sandbox": _sandbox, "zygote": _zygote, "capture": _capture, "measure": _capture}
    name = environment.get("EXECUTOR_MODE", "sandbox")
    if (mode := modes.get(name)) is None:
        sys.stderr.write(f"EXECUTOR_MODE is {name!r}; choose one of {', '.join(modes)}\n")
        return 2
    return mode(environment)


def _sandbox(environment: Mapping[str, str]) -> int:
    connection = _connected(environment["READIE_CONNECTION"])
    surroundings = Surroundings(_folder(environment), inherited(environment))
    surroundings.create()
    surroundings.enter()
    output.configure()
    return _serve(connection, surroundings, Greeting("sandbox"))


def _zygote(environment: Mapping[str, str]) -> int:
    # Here and below: a fresh sandbox starts faster without what only these modes need.
    from readie_executor import forking

    control = _connected(environment["READIE_CONNECTION"])
    surroundings = Surroundings(_folder(environment), inherited(environment))
    clone = forking.serve_forks(control, _preimports(environment), surroundings)
    if clone is None:
        return 0
    greeting = Greeting("zygote", environment.get("READIE_CHECKPOINT") or None)
    return _serve(clone.connection, clone.surroundings, greeting)


def _capture(environment: Mapping[str, str]) -> int:
    from readie_executor import capturing

    run_dir = environment["READIE_RUN_DIR"]
    surroundings = Surroundings(_folder(environment), inherited(environment))
    surroundings.create()
    surroundings.enter()
    output.configure()
    clone = capturing.capture(_preimports(environment), run_dir, surroundings)
    if clone is None:
        return REFUSED_EXIT
    if clone.ticket.measure:
        return 0
    connection = _connected(f"unix:{run_dir}/executor.sock")
    return _serve(connection, clone.surroundings, Greeting("capture", clone.ticket.checkpoint))


def _serve(connection: socket.socket, surroundings: Surroundings, greeting: Greeting) -> int:
    try:
        serve(Channel(connection), surroundings, greeting)
    except (ConnectionEndedError, BrokenPipeError, ConnectionResetError):
        return 0
    output.flush_c_library()
    return 0


def _connected(address: str) -> socket.socket:
    kind, _, place = address.partition(":")
    if kind == "fd":
        connection = socket.socket(fileno=int(place))
        connection.set_inheritable(False)
        return connection
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_DEADLINE_S)
        connection.connect(place)
        connection.settimeout(None)
        return connection
    raise ValueError(f"READIE_CONNECTION is {address!r}; write fd:N or unix:/path")


def _preimports(environment: Mapping[str, str]) -> list[str]:
    return [name for name in environment.get("READIE_PREIMPORT", "").split(",") if name]


def _folder(environment: Mapping[str, str]) -> str:
    parent = environment.get("TMPDIR") or "/tmp"  # noqa: S108 - private to the sandbox
    return environment.get("READIE_FOLDER") or f"{parent}/readie-{os.getpid()}"


if __name__ == "__main__":
    # Not sys.exit: the answer is sent, and threads or exit handlers that the function left behind
    # must not keep the sandbox alive.
    output.open_streams()
    code = main(dict(os.environ))
    output.flush()
    output.close()
    os._exit(code)
