"""The Lua steps: loaded from the package, sent by digest, one round trip each."""

import asyncio
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError

from readie_infra.connecting import ANSWER_TIMEOUT_S, LONGEST_BLOCK_S, translated
from readie_infra.line import Line

if TYPE_CHECKING:
    from redis.asyncio import Redis

_PRELUDE = "prelude"


def load_sources() -> dict[str, str]:
    """Step name → source as the server gets it: its flags, the shared prelude, its own lines."""
    folder = files("readie_infra") / "lua"
    texts = {
        item.name.removesuffix(".lua"): item.read_text("utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".lua")
    }
    prelude = texts.pop(_PRELUDE)
    return {name: _with_prelude(prelude, text) for name, text in texts.items()}


def _with_prelude(prelude: str, text: str) -> str:
    flags, body = text.split("\n", 1)  # the flags must stay the first line
    return f"{flags}\n{prelude}\n{body}"


class Steps:
    """Runs steps by name, and plain commands, against one server, below one key prefix."""

    def __init__(self, client: "Redis", prefix: str) -> None:
        self._pool = client.connection_pool
        self._line = Line(self._pool)
        self._waiting: dict[str, Line] = {}
        self._prefix = prefix
        self._sources = load_sources()
        self._digests = {
            name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            for name, source in self._sources.items()
        }

    async def run(self, name: str, *arguments: str | bytes | int) -> Any:
        """The step's raw answer. Raises `StoreUnavailableError`.

        A server that does not know the script (restarted, or its cache flushed) is given it.
        """
        words = ("0", self._prefix, *arguments)
        with translated():
            try:
                return await self._line.ask("EVALSHA", self._digests[name], *words)
            except NoScriptError:
                return await self._line.ask("EVAL", self._sources[name], *words)

    async def ask(self, *words: str | bytes | int) -> Any:
        """The raw answer to a plain command. Raises `StoreUnavailableError`."""
        with translated():
            return await self._line.ask(*words)

    async def wait(self, waiter: str, *words: str | bytes | int) -> Any:
        """The same for a command that blocks, on a connection that only this waiter uses."""
        line = self._waiting.get(waiter)
        if line is None:
            line = self._waiting[waiter] = Line(self._pool, LONGEST_BLOCK_S + ANSWER_TIMEOUT_S)
        try:
            with translated():
                return await line.ask(*words)
        except asyncio.CancelledError:
            # The server goes on waiting: the next one to wait needs a connection of its own.
            self._waiting.pop(waiter, None)
            await line.close()
            raise

    @property
    def connections(self) -> int:
        """How often the shared connection was made; equal numbers mean that it held in between."""
        return self._line.connections

    async def close(self) -> None:
        for line in (self._line, *self._waiting.values()):
            await line.close()


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
