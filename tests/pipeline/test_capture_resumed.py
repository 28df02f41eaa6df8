"""A capture that was killed or failed goes on where it was, and takes nothing half for whole."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from readie_pipeline.capture.building import Job, Report, build
from readie_pipeline.capture.capturer import Platform
from readie_pipeline.capture.conditions import Conditions
from readie_pipeline.errors import CaptureError, OutputError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry
from readie_wire.manifest import CheckpointMeta, load_manifest, load_meta
from support.gvisor_kit import real_runsc, sandboxes
from support.interpreters import interpreter_with
from support.processes import tied

DEADLINE_S = 100.0
IMAGE = "image"
RECORDS = "generation/checkpoints/*/meta.json"
SIZES_MB = {"huge": 1e12}
KILLED, FAILED = 77, 78  # exit codes


class PaperCapturer:
    """Captures to a file that says what was imported; ``version`` is what it depends on.

    Importing ``broken`` fails; importing ``fatal`` ends the run as Ctrl-C does.
    """

    runtime = "gvisor"
    size_matters = True
    stores = True

    def __init__(self, version: str = "1") -> None:
        self.version = version
        self.captured: list[str] = []

    async def open(self) -> None: ...

    async def capture(
        self, checkpoint_id: str, imports: Iterable[str], folder: Path
    ) -> CheckpointMeta:
        imports = tuple(imports)
        (folder / IMAGE).write_text(f"{imports}")
        if "fatal" in imports:
            raise KeyboardInterrupt
        if "broken" in imports:
            raise CaptureError("it is broken")
        self.captured.append(checkpoint_id)
        return CheckpointMeta(checkpoint_id, "gvisor", imports, gvisor_version=self.version)

    async def prove(self, meta: CheckpointMeta, folder: Path) -> None:
        if meta.gvisor_version != self.version:
            raise CaptureError(f"it was captured with {meta.gvisor_version}")
        await self.restore_seconds(meta.id, folder)
        if (folder / IMAGE).read_text() != f"{tuple(meta.imports)}":
            raise CaptureError("its image has changed")

    async def restore_seconds(self, checkpoint_id: str, folder: Path) -> float:
        return 0.1

    async def cold_seconds(self) -> float:
        return 0.2

    def platform(self) -> Platform:
        return Platform("3.11.7", "/usr/bin/python3", ("python3",))

    def conditions(self) -> Conditions:
        return Conditions({"version": self.version})

    async def close(self) -> None: ...


class Capture:
    """One folder to capture into, again and again; ``told`` is what the operator read last time."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "generation"
        self.stage = folder / ".generation.partial"
        self.told: list[str] = []

    async def __call__(
        self, *imports: str, capturer: PaperCapturer | None = None, strict: bool = False
    ) -> list[str]:
        """The ids of the checkpoints that were captured, not reused."""
        capturer = capturer or PaperCapturer()
        await self.run(imports, capturer, strict=strict)
        return capturer.captured

    async def run(
        self, imports: Iterable[str], capturer: PaperCapturer, *, strict: bool = False
    ) -> Report:
        self.told = []
        entries = [PlanEntry((name,), size_mb=SIZES_MB.get(name, 1.0)) for name in imports]
        plan = Plan("fixed", "cpu", 0.002, entries)
        job = Job(plan, Metadata("3.11.7", {}, {}), self.out, strict=strict)
        return await build(
            job, capturer, lambda names, _: (name for name in names), self.told.append
        )

    async def interrupted(self, *imports: str) -> None:
        with pytest.raises(KeyboardInterrupt):
            await self(*imports, "fatal")

    def image(self, checkpoint_id: str) -> Path:
        return self.stage / "generation/checkpoints" / checkpoint_id / IMAGE


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path)


async def test_only_what_is_missing_is_captured_again(capture: Capture, tmp_path: Path) -> None:
    await capture.interrupted("numpy", "pandas")
    assert capture.told == [
        f"checkpoint_1, checkpoint_2: kept in {capture.stage}; the same command goes on from there"
    ]
    assert not capture.out.exists()

    assert await capture("numpy", "pandas", "six") == ["checkpoint_3"]
    assert capture.told == [
        "checkpoint_3 of an earlier run is not used: its capture was not completed",
        "checkpoint_1, checkpoint_2: captured by an earlier run, proven and used again",
    ]
    manifest = load_manifest((capture.out / "manifest.json").read_bytes())
    assert [one.imports for one in manifest.checkpoints] == [("numpy",), ("pandas",), ("six",)]
    assert names_in(tmp_path) == ["generation"]


async def test_a_strict_run_that_failed_goes_on_when_the_package_is_repaired(
    capture: Capture,
) -> None:
    with pytest.raises(CaptureError, match="checkpoint_2: it is broken"):
        await capture("numpy", "broken", "six", strict=True)
    assert await capture("numpy", "repaired", "six", strict=True) == [
        "checkpoint_2",
        "checkpoint_3",
    ]


async def test_what_a_changed_plan_does_not_have_is_dropped_with_the_reason(
    capture: Capture,
) -> None:
    await capture.interrupted("numpy", "pandas", "six")
    assert await capture("numpy", "polars") == ["checkpoint_2"]
    assert capture.told[:2] == [
        "checkpoint_2 of an earlier run is not used: it imports pandas, and the plan now says polars",
        "checkpoint_3 of an earlier run is not used: the plan has no such checkpoint any more",
    ]


async def test_what_was_captured_under_other_conditions_is_dropped(capture: Capture) -> None:
    await capture.interrupted("numpy")
    assert await capture("numpy", capturer=PaperCapturer("2")) == ["checkpoint_1"]
    assert capture.told[0] == ("checkpoint_1 of an earlier run is not used: it was captured with 1")


async def test_an_image_or_record_that_broke_is_never_used(capture: Capture) -> None:
    await capture.interrupted("numpy", "pandas")
    capture.image("checkpoint_1").write_text("")
    record = capture.image("checkpoint_2").with_name("meta.json")
    record.write_bytes(record.read_bytes()[:40])
    assert await capture("numpy", "pandas") == ["checkpoint_1", "checkpoint_2"]
    assert "checkpoint_1 of an earlier run is not used: its image has changed" in capture.told
    assert any("its record cannot be read" in line for line in capture.told)


async def test_a_failed_run_that_captured_nothing_leaves_nothing(
    capture: Capture, tmp_path: Path
) -> None:
    with pytest.raises(CaptureError):
        await capture("broken")
    assert names_in(tmp_path) == []


async def test_what_cannot_fit_on_the_disk_is_refused_before_any_work(capture: Capture) -> None:
    capturer = PaperCapturer()
    with pytest.raises(CaptureError, match=r"2 checkpoints will take about .* MB, and .* are free"):
        await capture("numpy", "huge", capturer=capturer)
    assert capturer.captured == []


async def test_two_captures_into_one_folder_are_refused(capture: Capture) -> None:
    class Impatient(PaperCapturer):
        async def cold_seconds(self) -> float:
            with pytest.raises(OutputError, match="another capture is making"):
                await Capture(capture.out.parent)("six")
            return 0.2

    assert await capture("numpy", capturer=Impatient()) == ["checkpoint_1"]


async def test_a_kill_between_the_two_renames_loses_no_generation(capture: Capture) -> None:
    await capture("numpy")
    earlier = (capture.out / "manifest.json").read_bytes()
    capture.stage.mkdir()
    capture.out.rename(capture.stage / "previous")

    with pytest.raises(CaptureError):
        await capture("broken")
    assert (capture.out / "manifest.json").read_bytes() == earlier


async def test_two_captures_of_one_second_are_two_generations(capture: Capture) -> None:
    first = (await capture.run(["numpy"], PaperCapturer())).recorded.manifest
    second = (await capture.run(["numpy"], PaperCapturer())).recorded.manifest
    assert first.nonce != second.nonce
    assert first.generation[-8:] != second.generation[-8:]


STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"})


def die_at(step: int, folder: Path) -> None:
    """End this process, as SIGKILL does, before its ``step``th operation on files in ``folder``."""
    steps = itertools.count(1)

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and str(arguments[0]).startswith(str(folder)) and next(steps) == step:
            os._exit(KILLED)

    sys.addaudithook(count)


def dies(capture: Capture, step: int) -> bool:
    """Capture in a process that dies at that step; False: it was through before."""
    child = os.fork()
    if child == 0:
        status = FAILED
        try:
            die_at(step, capture.out.parent)
            asyncio.run(capture("numpy", "pandas"))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing_half(tmp_path: Path) -> None:
    earlier = Capture(tmp_path / "earlier")
    asyncio.run(earlier("six"))
    replaced = load_manifest((earlier.out / "manifest.json").read_bytes())
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        shutil.copytree(earlier.out.parent, folder)
        capture = Capture(folder)
        if not dies(capture, step):
            break
        whole = {record.parent.name for record in capture.stage.glob(RECORDS)}
        captured = asyncio.run(capture("numpy", "pandas"))
        assert set(captured) == {"checkpoint_1", "checkpoint_2"} - whole
        later = load_manifest((capture.out / "manifest.json").read_bytes())
        assert later.generation != replaced.generation
        assert [one.imports for one in later.checkpoints] == [("numpy",), ("pandas",)]
        for one in later.checkpoints:
            image = capture.out / "checkpoints" / one.id / IMAGE
            assert image.read_text() == f"{one.imports}"
        assert names_in(folder) == ["generation"]
    assert step > 20, "hardly any step was seen"


# Hangs where it is captured; it is measured by a program called probe.py before.
HANGS = """
import pathlib, sys, time
if "probe" not in str(getattr(sys.modules["__main__"], "__file__", "")):
    pathlib.Path({note!r}).touch()
    time.sleep(600)
"""


def test_a_capture_that_is_told_to_stop_leaves_nothing_running(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Also where a shell had it ignore SIGINT, as with ``&`` in a script."""
    note = tmp_path / "hangs"
    python = interpreter_with(tmp_path / "python", {"hangs": HANGS.format(note=str(note))})
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = start(
            *("capture", "--planner", "fixed", "--imports", "hangs", "--repeats", 1),
            *("--runtime", "fork", "--out", tmp_path / "generation"),
            python=python,
            TMPDIR=str(tmp_path),
        )
    finally:
        signal.signal(signal.SIGINT, ignored)
    deadline = time.monotonic() + DEADLINE_S
    while not note.exists():
        assert run.poll() is None, "it ended before it could be told to"
        assert time.monotonic() < deadline, "it was never captured"
        time.sleep(0.02)
    run.send_signal(signal.SIGTERM)
    _, complaints = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 1
    assert "Aborted!" in complaints
    assert names_in(tmp_path / f"readie-capture-{os.geteuid()}/fork") == []
    assert not (tmp_path / ".generation.partial").exists()


@pytest.mark.timeout(300)
def test_a_killed_capture_in_gvisor_goes_on(tmp_path: Path) -> None:
    real_runsc()
    out = tmp_path / "generation"
    sets = "--with-empty --imports six"
    words = f"capture --planner fixed {sets} --runtime gvisor --repeats 1 --out {out}".split()
    command = tied(sys.executable, "-m", "readie_pipeline", *words)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    record = tmp_path / ".generation.partial/generation/checkpoints/checkpoint_0/meta.json"
    killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + DEADLINE_S
    while not (record.exists() and sandboxes(tmp_path)):
        assert killed.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "nothing was captured"
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    image = load_meta(record.read_bytes()).image_files

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "checkpoint_0" in done.stderr
    assert "captured by an earlier run, proven and used again" in done.stderr
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.id for one in manifest.checkpoints] == [f"checkpoint_{n}" for n in range(2)]
    meta = load_meta((out / "checkpoints/checkpoint_0/meta.json").read_bytes())
    assert meta.image_files == image, "it was captured again"
    assert meta.restore_s is not None
    assert sandboxes(tmp_path) == []
    assert not (tmp_path / ".generation.partial").exists()
