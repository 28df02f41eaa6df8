"""Try a `runsc` before trusting it: run, checkpoint, restore, a dozen times.

Builds exist that answer every question rightly and then die in a tenth of their runs; only running
them finds that out. `python -m readie_worker.sandbox.selftest --quick --json` is what the choice of
a runtime and `readie doctor` use.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from readie_worker.sandbox.errors import SandboxError
from readie_worker.sandbox.gvisor.builds import UnusableBinaryError, identify
from readie_worker.sandbox.gvisor.children import Children
from readie_worker.sandbox.gvisor.ocispec import RUN_DIR, Shape, build_spec
from readie_worker.sandbox.gvisor.pipes import Pipes
from readie_worker.sandbox.gvisor.rootfs import GID, UID, Rootfs, build_bare_rootfs
from readie_worker.sandbox.gvisor.rundir import RunDir
from readie_worker.sandbox.gvisor.runsc import Container, Runsc, RunscError

FULL_ROUNDS = 12  # a build that fails one run in ten passes this with a chance of 8 in 100
QUICK_ROUNDS = 2
AT_ONCE = 2  # rounds side by side
STEP_DEADLINE_S = 60.0

# Processes come and go, so that a sandbox that cannot keep its tasks apart dies of it.
_WORK = "for i in 1 2 3 4 5; do /bin/true || exit 1; done; echo well"
_CAPTURE = f"echo ready; while [ ! -e {RUN_DIR}/ticket.json ]; do sleep 0.05; done; {_WORK}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok``, or ``reason`` says why not. ``rounds`` is how many runs and restores went well."""

    ok: bool
    reason: str
    runsc: str
    version: str = ""
    go: str = ""
    sha256: str = ""
    rounds: int = 0
    seconds: float = 0.0


def look_at(binary: Path) -> Verdict:
    """Refuse what is no `runsc`, or one that is known not to work; nothing is started."""
    try:
        build = identify(binary)
    except UnusableBinaryError as error:
        return Verdict(False, str(error), str(binary))
    refusal = build.refusal()
    return Verdict(
        refusal is None, refusal or "", str(binary), build.version, build.go, build.sha256
    )


async def try_runsc(binary: Path, rounds: int = FULL_ROUNDS) -> Verdict:
    """Run, checkpoint and restore with `binary`. Never raises for what the binary does wrong."""
    started = time.monotonic()
    seen = await asyncio.to_thread(look_at, binary)
    if not seen.ok:
        return seen
    facts = replace(seen, ok=False)
    if os.geteuid() != 0:
        return replace(facts, reason="gVisor sandboxes need root")
    with tempfile.TemporaryDirectory(prefix="rd-try-", ignore_cleanup_errors=True) as name:
        trial = _Trial(binary, Path(name))
        try:
            await trial.rounds(rounds)
        except (SandboxError, TimeoutError, OSError) as error:
            reason = str(error) or f"a step took more than {STEP_DEADLINE_S:.0f} s"
            return replace(facts, reason=f"self-test: {reason}", rounds=trial.done)
    seconds = round(time.monotonic() - started, 2)
    return replace(facts, ok=True, rounds=trial.done, seconds=seconds)


class _Trial:
    """The containers of one self-test, in a folder of their own."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.done = 0
        self._folder = folder
        self._image = folder / "image"
        self._image.mkdir()
        self._rootfs = build_bare_rootfs(folder / "root")
        self._runsc = Runsc(binary, folder / "state")
        self._children = Children()
        self._children.adopt_orphans()
        self._made = 0

    async def rounds(self, count: int) -> None:
        await self._capture()
        for start in range(0, count, AT_ONCE):
            rounds = [self._round() for _ in range(min(AT_ONCE, count - start))]
            for outcome in await asyncio.gather(*rounds, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _round(self) -> None:
        await self._expect_well(_WORK, image=None)
        await self._expect_well(_CAPTURE, image=self._image)
        self.done += 1

    async def _capture(self) -> None:
        rundir, container, pipes = self._prepare(_CAPTURE)
        try:
            await self._runsc.create(container, pipes.stdio)
            pipes.close_container_ends()
            await self._runsc.start(container)
            async with asyncio.timeout(STEP_DEADLINE_S):
                await _read(pipes.stdout, until=b"ready\n")
            processes = await self._children.of(container.bundle)
            await self._runsc.checkpoint(container, self._image, STEP_DEADLINE_S)
            for pid in processes.all:
                await self._children.ended(pid)
        finally:
            await self._clean(rundir, container, pipes)

    async def _expect_well(self, script: str, image: Path | None) -> None:
        rundir, container, pipes = self._prepare(script)
        try:
            await self._runsc.create(container, pipes.stdio)
            pipes.close_container_ends()
            processes = await self._children.of(container.bundle)
            if image is None:
                await self._runsc.start(container)
            else:
                rundir.write_ticket(container.id)
                await self._runsc.restore(container, image)
            async with asyncio.timeout(STEP_DEADLINE_S):
                printed = await _read(pipes.stdout)
                for pid in processes.all:
                    await self._children.ended(pid)
        finally:
            await self._clean(rundir, container, pipes)
        if printed != b"well\n":
            what = "run" if image is None else "restore"
            raise RunscError(f"a {what} printed {printed!r} where 'well' was due, then ended")

    def _prepare(self, script: str) -> tuple[RunDir, Container, Pipes]:
        self._made += 1
        rundir = RunDir(self._folder / f"run-{self._made}")
        shape = _shell(self._rootfs, script)
        rundir.write_spec(build_spec(shape, run_dir=rundir.shared, environment={}, network="none"))
        name = f"readie-try-{os.getpid()}-{self._made}"
        return rundir, Container(name, rundir.bundle, "none"), Pipes()

    async def _clean(self, rundir: RunDir, container: Container, pipes: Pipes) -> None:
        # The binary under test may not even manage to end what it started.
        self._children.kill(container.bundle)
        with contextlib.suppress(SandboxError):
            await self._runsc.delete(container)
        self._children.bury()
        pipes.close()
        rundir.remove()


def _shell(rootfs: Rootfs, script: str) -> Shape:
    return Shape(
        root=rootfs.root,
        binds=rootfs.binds,
        command=("/bin/sh", "-c", script),
        uid=UID,
        gid=GID,
        open_files=256,
        shm_bytes=1 << 20,
        tmp_bytes=1 << 20,
    )


async def _read(descriptor: int, until: bytes | None = None) -> bytes:
    """What comes out of a pipe up to `until`, or to its end."""
    reader = asyncio.StreamReader()
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            return await (reader.read() if until is None else reader.readuntil(until))
        except asyncio.IncompleteReadError as error:
            raise RunscError(f"the program ended after {error.partial!r}") from error
        finally:
            transport.close()


def find_runsc() -> Path | None:
    """The `runsc` on the PATH."""
    found = shutil.which("runsc")
    return None if found is None else Path(found)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="readie_worker.sandbox.selftest", description=__doc__)
    parser.add_argument("--runsc", type=Path, help="the binary (default: the one on the PATH)")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    effort.add_argument(
        "--identify", action="store_true", help="start nothing, only refuse builds known to be bad"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    binary = options.runsc or find_runsc()
    if binary is None:
        verdict = Verdict(False, "no runsc on the PATH; install one with infra/gvisor/install", "")
    elif options.identify:
        verdict = look_at(binary.resolve())
    else:
        rounds = QUICK_ROUNDS if options.quick else FULL_ROUNDS
        verdict = asyncio.run(try_runsc(binary.resolve(), rounds))
    print(json.dumps(asdict(verdict)) if options.json else _sentence(verdict))  # noqa: T201
    return 0 if verdict.ok else 1


def _sentence(verdict: Verdict) -> str:
    if not verdict.ok:
        return f"refused: {verdict.reason}"
    name = f"runsc {verdict.version} ({verdict.go or 'unknown Go'})"
    if not verdict.rounds:
        return f"{name}: nothing is known against it"
    return f"passed: {name}, {verdict.rounds} runs and restores in {verdict.seconds} s"


if __name__ == "__main__":
    sys.exit(main())
