"""Makes containers of one shape and starts them: everything that cold, restore and capture share."""

import asyncio
import itertools
import os
import socket
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readie_worker.sandbox.api import Network
from readie_worker.sandbox.errors import RuntimeUnavailableError, SandboxError, StartError
from readie_worker.sandbox.gvisor import network as networks
from readie_worker.sandbox.gvisor.builds import RunscBuild
from readie_worker.sandbox.gvisor.cgroups import Cgroups, open_cgroups
from readie_worker.sandbox.gvisor.children import Children
from readie_worker.sandbox.gvisor.container import CreatedContainer, Parts
from readie_worker.sandbox.gvisor.folder import RuntimeFolder
from readie_worker.sandbox.gvisor.mounts import (
    mount_tmpfs,
    show_read_only,
    shown_read_only,
)
from readie_worker.sandbox.gvisor.network import Link, NetworkError, SandboxNetwork
from readie_worker.sandbox.gvisor.ocispec import HOME, RUN_DIR, Shape, build_spec
from readie_worker.sandbox.gvisor.pipes import Pipes
from readie_worker.sandbox.gvisor.rootfs import GID, UID, Rootfs, build_host_rootfs
from readie_worker.sandbox.gvisor.rundir import SOCKET_INSIDE, RunDir
from readie_worker.sandbox.gvisor.runsc import Container, Runsc, RunscError

# A restored process keeps the limit it was captured with, so it is the same for every sandbox.
OPEN_FILES = 4096
SHM_BYTES = 1 << 30  # an upper bound: pages count as the sandbox's memory when they are used
TMP_BYTES = 16 << 30  # likewise
LAST_WORDS = 2000  # bytes of a failed start's output that go into the error


@dataclass(frozen=True, slots=True)
class Ground:
    """What a runtime stands on while it is open."""

    folder: RuntimeFolder
    build: RunscBuild
    cgroups: Cgroups
    rootfs: Rootfs
    network: SandboxNetwork | None


def shape_of(rootfs: Rootfs) -> Shape:
    """The shape of every sandbox on this root filesystem."""
    return Shape(
        root=rootfs.root,
        binds=rootfs.binds,
        command=(rootfs.python, "-I", "-m", "readie_executor"),
        uid=UID,
        gid=GID,
        open_files=OPEN_FILES,
        shm_bytes=SHM_BYTES,
        tmp_bytes=TMP_BYTES,
    )


class Launcher:
    """Creates, starts and restores; knows every container that exists.

    ``variables`` is what of the worker's environment sandboxes get.
    """

    def __init__(self, ground: Ground, variables: Mapping[str, str]) -> None:
        self.ground = ground
        self.shape = shape_of(ground.rootfs)
        self._variables = variables
        self._runsc = Runsc(ground.build.path, ground.folder.state)
        self._children = Children()
        self._children.adopt_orphans()
        self._numbers = itertools.count(1)
        self._containers: set[CreatedContainer] = set()

    async def create(
        self, network: Network, environment: Mapping[str, str] | None = None
    ) -> CreatedContainer:
        """A created container; without an ``environment`` of its own, one that serves a call.

        Raises `StartError`; nothing of it is left then.
        """
        name = f"readie-{self.ground.folder.owner}-{next(self._numbers)}"
        given = _SERVING if environment is None else environment
        link: Link | None = None
        try:
            link = await self._link(network)
            parts = self._parts(name, network, link, given)
        except (NetworkError, OSError) as error:
            if link is not None and self.ground.network is not None:
                await self.ground.network.remove(link)
            raise StartError(f"no place for a sandbox: {error}") from error
        created = CreatedContainer(
            parts, self._runsc, self._children, self.ground.network, self._containers.discard
        )
        self._containers.add(created)
        try:
            await created.create()
        except BaseException as error:
            await created.remove()
            if isinstance(error, SandboxError):
                raise StartError(str(error)) from error
            raise
        return created

    async def start(self, created: CreatedContainer, deadline_s: float) -> socket.socket:
        """Run a fresh interpreter; the executor's connection. Raises `StartError`."""
        return await self._bring_up(created, self._runsc.start(created.parts.container), deadline_s)

    async def restore(
        self, created: CreatedContainer, image: Path, deadline_s: float
    ) -> socket.socket:
        """Continue a checkpoint; the executor's connection. Raises `StartError`."""
        command = self._runsc.restore(created.parts.container, image)
        return await self._bring_up(created, command, deadline_s)

    async def start_alone(self, created: CreatedContainer) -> None:
        """Run a program that does not connect. Raises `StartError`."""
        await self._translated(self._runsc.start(created.parts.container))

    async def restore_alone(self, created: CreatedContainer, image: Path) -> None:
        """Continue a checkpoint that does not connect. Raises `StartError`."""
        await self._translated(self._runsc.restore(created.parts.container, image))

    async def checkpoint(self, created: CreatedContainer, image: Path, deadline_s: float) -> None:
        """Save it and end it. Raises `StartError`."""
        await self._translated(self._runsc.checkpoint(created.parts.container, image, deadline_s))

    async def close(self) -> None:
        """Remove every container, then the ground."""
        await asyncio.gather(*(created.remove() for created in set(self._containers)))
        await close_ground(self.ground)

    async def _link(self, network: Network) -> Link | None:
        if network != "sandbox":
            return None
        if self.ground.network is None:
            raise NetworkError("this worker was opened without a network for sandboxes")
        return await self.ground.network.link()

    def _parts(
        self, name: str, network: Network, link: Link | None, environment: Mapping[str, str]
    ) -> Parts:
        group = self.ground.cgroups.make(name)
        rundir = RunDir(self.ground.folder.runs / name)
        spec = build_spec(
            self.shape,
            run_dir=self.ground.folder.view_of(rundir.shared),
            environment={**self._variables, **environment},
            network=network,
            netns=None if link is None else link.path,
        )
        try:
            rundir.write_spec(spec)
            rundir.write_resolver(networks.resolver_file(network))
            rundir.listen()
            pipes = Pipes()
        except OSError:
            rundir.remove()
            group.remove()
            raise
        enter = () if link is None else link.entering()
        container = Container(name, rundir.bundle, network, enter)
        return Parts(container, rundir, group, pipes, link)

    async def _bring_up(
        self, created: CreatedContainer, command: Coroutine[Any, Any, None], deadline_s: float
    ) -> socket.socket:
        accepted = asyncio.ensure_future(self._accept(created))
        either: list[asyncio.Future[Any]] = [accepted, created.exit]
        try:
            async with asyncio.timeout(deadline_s):
                await command
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if created.connection is not None:
                return created.connection
            raise StartError(f"it ended with {created.exit.result()}{_last_words(created)}")
        except TimeoutError as error:
            words = _last_words(created)
            raise StartError(f"not up after {deadline_s:g} s{words}") from error
        except RunscError as error:
            raise StartError(f"{error}{_last_words(created)}") from error
        finally:
            accepted.cancel()
            await asyncio.wait([accepted])  # until then the loop watches the listener's number
            created.parts.rundir.stop_listening()

    @staticmethod
    async def _accept(created: CreatedContainer) -> None:
        created.connection = await created.parts.rundir.accept()

    @staticmethod
    async def _translated(command: Coroutine[Any, Any, None]) -> None:
        try:
            await command
        except RunscError as error:
            raise StartError(str(error)) from error


_SERVING = {
    "EXECUTOR_MODE": "sandbox",
    "READIE_CONNECTION": f"unix:{SOCKET_INSIDE}",
    "READIE_RUN_DIR": RUN_DIR,
    "READIE_FOLDER": f"{HOME}/sandbox",
}


def capturing_environment(imports: str) -> dict[str, str]:
    """What a process to be saved is started with; ``imports`` are comma-separated."""
    return {
        **_SERVING,
        "EXECUTOR_MODE": "capture",
        "READIE_PREIMPORT": imports,
    }


async def open_ground(
    parent: Path, build: RunscBuild, python: Path, *, with_network: bool
) -> Ground:
    """Lay out everything on the host. Raises `RuntimeUnavailableError`; nothing is left then."""
    folder = RuntimeFolder(parent)
    network = SandboxNetwork(folder.owner) if with_network else None
    try:
        mount_tmpfs(folder.runs)
        show_read_only(folder.runs, folder.view_of(folder.runs))
        cgroups = open_cgroups(folder.owner)
        built = await asyncio.to_thread(build_host_rootfs, folder.root, python)
        rootfs = shown_read_only(built, folder.view)
        if network is not None:
            await network.open()
    except BaseException as error:
        if network is not None:
            await network.close()
        folder.remove()
        if isinstance(error, OSError):
            raise RuntimeUnavailableError(f"cannot lay out {folder.path}: {error}") from error
        raise
    return Ground(folder, build, cgroups, rootfs, network)


async def close_ground(ground: Ground) -> None:
    if ground.network is not None:
        await ground.network.close()
    ground.cgroups.forget(ground.folder.owner)
    await asyncio.to_thread(ground.folder.remove)


def _last_words(created: CreatedContainer) -> str:
    """The end of what a sandbox that did not come up had to say, and what else is known of it."""
    ran_out = "; it ran out of memory" if created.parts.group.out_of_memory_kills() else ""
    try:
        said = os.read(created.parts.pipes.stderr, 1 << 16)
    except OSError:
        said = b""
    text = said[-LAST_WORDS:].decode(errors="replace").strip()
    return f"{ran_out}: {text}" if text else ran_out
