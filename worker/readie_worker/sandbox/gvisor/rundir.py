"""The run directory of a sandbox: on a tmpfs, read-only inside, gone with the sandbox.

It holds the listener the executor connects to, the ticket that tells a restored clone who it is,
the name servers of today and the bundle that `runsc` reads.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from readie_worker.sandbox.gvisor.ocispec import RUN_DIR

SOCKET_NAME = "executor.sock"
SOCKET_INSIDE = f"{RUN_DIR}/{SOCKET_NAME}"
TICKET_NAME = "ticket.json"
ENTROPY_BYTES = 32


class RunDir:
    """One sandbox's folder.

    ``shared`` is what the sandbox sees; ``bundle``, beside it, is the worker's and runsc's alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shared = folder / "shared"
        self.bundle = folder / "bundle"
        # The executor is another user: it may enter and read, and write nowhere.
        self.shared.mkdir(parents=True)
        self.shared.chmod(0o755)
        self.bundle.mkdir()
        self._listener: socket.socket | None = None

    def write_spec(self, spec: Mapping[str, Any]) -> None:
        (self.bundle / "config.json").write_text(json.dumps(spec))

    def write_resolver(self, text: str) -> None:
        path = self.shared / "resolv.conf"
        path.write_text(text)
        path.chmod(0o644)

    def write_ticket(self, clone: str, **more: object) -> None:
        """What a restored process waits for; written whole, then put in place."""
        ticket = {"clone": clone, "entropy": secrets.token_hex(ENTROPY_BYTES), **more}
        draft = self.bundle / TICKET_NAME
        draft.write_text(json.dumps(ticket))
        draft.chmod(0o644)
        draft.replace(self.shared / TICKET_NAME)

    def listen(self) -> None:
        """Be reachable before the executor looks for us."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        # By way of a descriptor: an address has at most 108 bytes, a data folder may have more.
        folder = os.open(self.shared, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        finally:
            os.close(folder)
        (self.shared / SOCKET_NAME).chmod(0o666)
        listener.listen(1)
        self._listener = listener

    async def accept(self) -> socket.socket:
        """The executor's one connection; then nobody can connect any more."""
        if self._listener is None:
            raise RuntimeError("accept comes after listen, once")
        connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        connection.setblocking(False)
        self.stop_listening()
        return connection

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with contextlib.suppress(FileNotFoundError):
            (self.shared / SOCKET_NAME).unlink()

    def remove(self) -> None:
        self.stop_listening()
        shutil.rmtree(self._folder, ignore_errors=True)
