"""The `runsc` command line: each step of a container's life as a coroutine with a deadline."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_worker.sandbox.api import Network
from readie_worker.sandbox.errors import SandboxError
from readie_worker.sandbox.gvisor.commands import run

COMMAND_DEADLINE_S = 60.0  # one step on a busy machine; usually 0.02 to 0.3 s
LAST_WORDS = 600  # characters of a log that go into an error


class RunscError(SandboxError):
    """A `runsc` command failed or took too long; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Stdio:
    """The descriptors a container is created with.

    Kinds must be the same at capture and at restore: a process captured with pipes and restored
    with files dies without a word.
    """

    stdin: int
    stdout: int
    stderr: int


NO_STDIO = Stdio(subprocess.DEVNULL, subprocess.DEVNULL, subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Container:
    """A container's id and the folder with its ``config.json``.

    ``enter`` is put before every command that touches it: a program that joins the network
    namespace and then executes the rest of its arguments.
    """

    id: str
    bundle: Path
    network: Network
    enter: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        return self.bundle / "runsc.log"


class Runsc:
    """One binary with one folder for the state of its containers (``--root``)."""

    def __init__(self, binary: Path, state: Path) -> None:
        self._binary = binary
        self._state = state

    async def create(
        self, container: Container, stdio: Stdio, joining: tuple[str, ...] = ()
    ) -> None:
        """Make the sandbox and all its mounts, ready for `start` or `restore`.

        Its processes stay when the command ends: see `children`. ``joining`` is put before the
        command, as ``enter`` is; the processes keep what it brought about.
        """
        command = self._command(container, "create", "-bundle", str(container.bundle))
        await self._finish(
            [*joining, *command],
            container,
            "create",
            stdio=stdio,
        )

    async def start(self, container: Container) -> None:
        """Run the program of a created container."""
        await self._run(container, "start")

    async def restore(self, container: Container, image: Path) -> None:
        """Continue the checkpoint in `image` in a created container."""
        bundle = ("-bundle", str(container.bundle))
        await self._run(container, "restore", "-detach", *bundle, "-image-path", str(image))

    async def checkpoint(self, container: Container, image: Path, deadline_s: float) -> None:
        """Save a running container to `image` and end it. Uncompressed: restores twice as fast."""
        options = ("-compression=none", "-image-path", str(image))
        await self._run(container, "checkpoint", *options, deadline_s=deadline_s)

    async def delete(self, container: Container) -> None:
        """Kill and forget a container; one that is unknown is no error."""
        await self._run(container, "delete", "-force")

    def _command(self, container: Container, verb: str, *options: str) -> list[str | Path]:
        return [
            *container.enter,
            *(self._binary, "--root", self._state, f"--log={container.log}"),
            *(f"--network={container.network}", "--platform=systrap"),
            # Writes go to memory; a host socket can be connected to, never made. Cgroups are ours.
            *("--overlay2=root:memory", "--host-uds=open", "--ignore-cgroups"),
            *(verb, *options, container.id),
        ]

    async def _run(
        self,
        container: Container,
        verb: str,
        *options: str,
        deadline_s: float = COMMAND_DEADLINE_S,
    ) -> None:
        command = self._command(container, verb, *options)
        await self._finish(command, container, verb, deadline_s)

    async def _finish(
        self,
        command: Sequence[str | Path],
        container: Container,
        verb: str,
        deadline_s: float = COMMAND_DEADLINE_S,
        stdio: Stdio = NO_STDIO,
    ) -> None:
        try:
            done = await run(
                command, deadline_s, stdin=stdio.stdin, stdout=stdio.stdout, stderr=stdio.stderr
            )
        except TimeoutError as error:
            raise RunscError(f"runsc {verb} took more than {deadline_s:.0f} s") from error
        if done.code != 0:
            raise RunscError(f"runsc {verb} exited with {done.code}: {_last_words(container.log)}")


def _last_words(log: Path) -> str:
    """The messages of runsc's JSON log lines, the last ones where there are many."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "it left no log"
    messages = []
    for line in text.replace("}{", "}\n{").splitlines():
        try:
            message = str(json.loads(line)["msg"])
            messages.append(message.partition("\n")[0])  # the rest is a stack trace
        except (ValueError, KeyError, TypeError):
            messages.append(line)
    return "; ".join(messages)[-LAST_WORDS:] or "it left an empty log"
