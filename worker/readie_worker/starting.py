"""Brings sandboxes up to the point where their executor waits for a call, or says why it did not."""

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, replace

from readie_wire.outcome import StartKind
from readie_worker.background import Background
from readie_worker.errors import NotStartedError
from readie_worker.executor_client import ExecutorConnection
from readie_worker.output import Output
from readie_worker.pipes import Pipes
from readie_worker.sandbox.api import (
    Checkpoint,
    Limits,
    Network,
    Runtime,
    Sandbox,
    SandboxExit,
    SandboxSpec,
)
from readie_worker.sandbox.errors import SandboxError

# Beyond the result itself: a message's header, a pickled exception, frame headers.
MESSAGE_MARGIN_BYTES = 16 << 20
LAST_WORDS = 3  # lines of a failed start's output that its reason quotes


@dataclass(slots=True)
class LiveSandbox:
    """A sandbox whose executor has said HELLO, with the worker's ends of it.

    ``limits`` are those that it was started with; ``python`` is its interpreter's full version;
    ``ahead`` tells that it was made before its call; ``served`` counts the calls of its session that it
    has answered.
    """

    sandbox: Sandbox
    connection: ExecutorConnection
    pipes: Pipes
    output: Output
    network: Network
    limits: Limits
    python: str = ""
    ahead: bool = False
    served: int = 0

    @property
    def kind(self) -> StartKind:
        if self.served:
            return StartKind.SESSION
        if self.ahead and self.sandbox.kind is StartKind.RESTORED:
            return StartKind.POOL
        return self.sandbox.kind

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.sandbox.checkpoint

    def keep(self) -> bool:
        """A call of a session was answered: get ready for the next one. `False`: it has died."""
        self.served += 1
        self.output = Output()
        self.pipes.redirect(self.output)
        return self.connection.renew()

    async def end(self, within: float) -> SandboxExit | None:
        """Kill every process of it; how it ended, or None when that was not seen within seconds."""
        try:
            async with asyncio.timeout(within):
                await self.sandbox.kill()
                return await self.sandbox.wait()
        except (TimeoutError, SandboxError):
            return None

    async def destroy(self) -> None:
        """Free everything, here and on the host. May be slow: run it in the background."""
        self.connection.close()
        self.pipes.close()
        await self.sandbox.destroy()


class Starter:
    """Starts sandboxes of one runtime. ``start_timeout`` (seconds) bounds each step to HELLO.

    ``network`` is what the worker offers; a call may narrow it. ``result_limit`` in bytes.
    """

    def __init__(
        self,
        runtime: Runtime,
        background: Background,
        *,
        boot: str,
        network: Network,
        start_timeout: float,
        result_limit: int,
    ) -> None:
        self._runtime = runtime
        self._background = background
        self.confines_network = runtime.isolation != "none"
        self._names = (f"readie-{boot.rpartition('-')[2][:8]}-{n}" for n in itertools.count(1))
        self.network = network
        self.start_timeout = start_timeout
        self.result_limit = result_limit

    async def start(
        self,
        checkpoint: Checkpoint | None,
        limits: Limits,
        network: Network | None = None,
        *,
        ahead: bool = False,
    ) -> LiveSandbox:
        """Restore ``checkpoint``, or start cold. Raises `NotStartedError`; nothing is left then.

        One that needs more than its memory to come up fails at once, even where it may grow later.
        """
        fixed = replace(limits, growing=False)
        spec = SandboxSpec(next(self._names), fixed, self._narrowed(network))
        what = "a cold start" if checkpoint is None else f"the restore of {checkpoint.key}"
        try:
            async with asyncio.timeout(self.start_timeout):
                if checkpoint is None:
                    sandbox = await self._runtime.cold(spec)
                else:
                    sandbox = await self._runtime.restore(checkpoint, spec)
        except TimeoutError as error:
            raise NotStartedError(
                f"{what} did not come up within {self.start_timeout:g} s"
            ) from error
        except (SandboxError, OSError) as error:
            raise NotStartedError(f"{what} failed: {error}") from error
        live = await self._greeted(sandbox, spec, what, limits, ahead)
        try:
            if limits != fixed:
                await sandbox.set_limits(limits)
        except (SandboxError, OSError) as error:
            self.discard(live)
            raise NotStartedError(f"{what}: {error}") from error
        return live

    async def _greeted(
        self, sandbox: Sandbox, spec: SandboxSpec, what: str, limits: Limits, ahead: bool
    ) -> LiveSandbox:
        output = Output()
        pipes = Pipes(sandbox.stdout, sandbox.stderr, output)
        try:
            connection = await ExecutorConnection.open(
                sandbox.connection, max_body=self.result_limit + MESSAGE_MARGIN_BYTES
            )
        except BaseException:
            pipes.close()
            self.discard(sandbox)
            raise
        live = LiveSandbox(sandbox, connection, pipes, output, spec.network, limits, ahead=ahead)
        try:
            live.python = (await connection.hello(self.start_timeout)).python
        except NotStartedError as error:
            await pipes.read_to_end(grace=0)
            words = " | ".join(output.last_lines(LAST_WORDS))
            self.discard(live)
            raise NotStartedError(f"{what}: {error}{f' ({words})' if words else ''}") from error
        except BaseException:
            self.discard(live)
            raise
        return live

    def discard(self, sandbox: LiveSandbox | Sandbox) -> None:
        """Destroy in the background: a runtime may need seconds for it."""
        self._background.run("destroying a sandbox", _quietly(sandbox))

    def suits(self, network: Network | None) -> bool:
        """Whether a sandbox made ahead has no more network than a call asks for."""
        return self._narrowed(network) == self.network

    def _narrowed(self, network: Network | None) -> Network:
        return "none" if network == "none" else self.network


async def _quietly(sandbox: LiveSandbox | Sandbox) -> None:
    # A sandbox that is gone already is what was wanted.
    with contextlib.suppress(SandboxError):
        await sandbox.destroy()
