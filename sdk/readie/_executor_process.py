"""One process of this machine with the program that runs calls in a sandbox, for `readie.testing`."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from readie import _settings
from readie_wire.framing import Decoder, FrameType, Message, encode_message

# Of our environment, what a fresh interpreter needs to come up; the function sees none of it.
_INHERITED = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONPATH")
_CHUNK = 1 << 18  # bytes of one read
_ENDINGS = frozenset({FrameType.RESULT, FrameType.ERROR})


class ExecutorProcess:
    """A fresh process. It serves one call and ends, or the calls of a session, one after another."""

    def __init__(self) -> None:
        ours = _settings.environment()
        environment = {name: ours[name] for name in _INHERITED if name in ours}
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "readie_executor"],
                env=environment
                | {"EXECUTOR_MODE": "sandbox", "READIE_CONNECTION": f"fd:{theirs.fileno()}"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._decoder = Decoder()
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None and self._process.stderr is not None  # noqa: S101, PT018
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe.fileno(), selectors.EVENT_READ, name)
        self._selector.register(self._connection, selectors.EVENT_READ, "")
        self.served = 0

    def call(
        self, header: Mapping[str, Any], payload: bytes, output: Callable[[str, bytes], None]
    ) -> Message | None:
        """The answer to one call; None when the process ended without one.

        ``output`` gets what is printed until then, by stream.
        """
        try:
            for frame in encode_message(FrameType.CALL, header, payload):
                self._connection.sendall(frame)
            for frame in encode_message(FrameType.GO):
                self._connection.sendall(frame)
            answer = self._answer(output)
        except OSError:
            answer = None
        self.served += 1
        self._print(output, to_the_end=not header.get("session"))
        return answer

    def kill(self) -> None:
        """End it and what it has started. Idempotent, from any thread."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> int:
        """End it where it goes on; its exit status."""
        self._connection.close()
        status = self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def _answer(self, output: Callable[[str, bytes], None]) -> Message | None:
        while True:
            for key, _ in self._selector.select():
                if key.data:
                    self._read(key, output)
                    continue
                data = self._connection.recv(_CHUNK)
                for message in self._decoder.feed(data):
                    if message.type in _ENDINGS:
                        return message
                if not data:
                    return None

    def _print(self, output: Callable[[str, bytes], None], *, to_the_end: bool) -> None:
        """What is still in the pipes; to the end where the process ends with its call."""
        self._selector.unregister(self._connection)
        while self._selector.get_map():
            ready = self._selector.select(None if to_the_end else 0)
            if not ready:
                break
            for key, _ in ready:
                self._read(key, output)
        self._selector.register(self._connection, selectors.EVENT_READ, "")

    def _read(self, key: selectors.SelectorKey, output: Callable[[str, bytes], None]) -> None:
        data = os.read(key.fd, _CHUNK)
        if data:
            output(key.data, data)
        else:
            self._selector.unregister(key.fd)
