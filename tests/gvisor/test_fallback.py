"""Checkpoints that do not fit, images that broke, and a runsc that fails: never a wrong start."""

import dataclasses
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from readie_worker.sandbox.api import Checkpoint, Limits
from readie_worker.sandbox.errors import (
    CheckpointRefusedError,
    RuntimeUnavailableError,
    StartError,
)
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime
from support.gvisor_kit import FlakyRunsc
from support.sandbox_kits import MEBIBYTE, Bench, new_spec

OpenGVisor = Callable[..., Awaitable[Bench]]


def altered(checkpoint: Checkpoint, **facts: Any) -> Checkpoint:
    return dataclasses.replace(checkpoint, meta={**checkpoint.meta, **facts})


def sandboxes_left(bench: Bench) -> list[str]:
    """Run directories, of which each sandbox has one until nothing of it is left."""
    folders = Path(bench.kit.site_packages.parent / "run").glob("gvisor-*/run/*")  # type: ignore[attr-defined]
    return [folder.name for folder in folders]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"gvisor_version": "0.0~20250101.0"}, "captured with gVisor 0.0~20250101.0"),
        ({"fingerprint": "00"}, "another shape"),
        ({"rootfs_digest": "00"}, "another root filesystem"),
        ({"cpu_features": ["fpu", "quantum"]}, "CPU features that are missing here: quantum"),
        ({"runtime": "fork"}, "captured for the fork runtime"),
        ({"image_files": []}, "does not tell the hash"),
        ({"version": 99}, "99"),
    ],
)
async def test_a_checkpoint_from_elsewhere_is_refused_with_the_reason(
    bench: Bench, facts: dict[str, Any], reason: str
) -> None:
    checkpoint = await bench.kit.capture("decimal")  # type: ignore[attr-defined]

    with pytest.raises(CheckpointRefusedError, match=reason):
        await bench.runtime.adopt(altered(checkpoint, **facts))
    with pytest.raises(StartError, match="has not been adopted"):
        await bench.runtime.restore(checkpoint, new_spec())


async def test_an_image_that_broke_on_disk_is_refused(bench: Bench) -> None:
    """One page of zeros: gVisor would restore it without a word."""
    checkpoint = await bench.kit.capture("decimal")  # type: ignore[attr-defined]
    assert checkpoint.path is not None
    with (checkpoint.path / "pages.img").open("r+b") as pages:
        pages.seek(4096)
        pages.write(bytes(4096))

    with pytest.raises(CheckpointRefusedError, match=r"pages\.img.*changed since capture"):
        await bench.runtime.adopt(checkpoint)


async def test_an_image_cut_short_after_adoption_starts_nothing(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("decimal")
    assert checkpoint.path is not None
    os.truncate(checkpoint.path / "pages.img", 4096)

    with pytest.raises(StartError, match=r"pages\.img.*has changed"):
        await bench.runtime.restore(checkpoint, new_spec())
    assert (await (await bench.start()).driver.call(pow, 2, 3)).value == 8


async def test_a_library_changed_after_adoption_starts_nothing(open_gvisor: OpenGVisor) -> None:
    bench = await open_gvisor({"mine": "VALUE = 1"})
    checkpoint = await bench.kit.capture("mine")  # type: ignore[attr-defined]
    library = bench.kit.site_packages / "library.so"  # type: ignore[attr-defined]
    library.write_bytes(b"code")
    known = {
        "path": str(library),
        "size": 4,
        "sha256": "5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b",
    }
    checkpoint = altered(checkpoint, mapped_files=[*checkpoint.meta["mapped_files"], known])
    await bench.runtime.adopt(checkpoint)
    library.write_bytes(b"c0de")

    with pytest.raises(StartError, match=r"library\.so.*has changed"):
        await bench.runtime.restore(checkpoint, new_spec())


async def test_what_libraries_a_checkpoint_maps_is_recorded(bench: Bench) -> None:
    checkpoint = await bench.kit.capture("decimal")  # type: ignore[attr-defined]
    mapped = json.loads(json.dumps(checkpoint.meta["mapped_files"]))

    names = {Path(file["path"]).name for file in mapped}
    assert any(name.startswith(("libc.so", "libc-")) for name in names)
    assert any(name.startswith("_decimal") for name in names)
    assert all(len(file["sha256"]) == 64 and file["size"] > 0 for file in mapped)


@pytest.fixture
def flaky(runsc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlakyRunsc:
    """It says the version of the real one, but is a script, so its build cannot be read."""
    return FlakyRunsc(tmp_path, runsc)


async def test_a_restore_that_fails_says_so_and_leaves_nothing(
    open_gvisor: OpenGVisor, flaky: FlakyRunsc
) -> None:
    bench = await open_gvisor(runsc=flaky.path)
    checkpoint = await bench.checkpoint("decimal")
    flaky.order("exit 3")

    with pytest.raises(StartError, match="runsc restore exited with 3"):
        await bench.runtime.restore(checkpoint, new_spec())
    assert sandboxes_left(bench) == []
    flaky.order(None)
    assert (await (await bench.start(checkpoint)).driver.call(pow, 2, 3)).value == 8


async def test_a_restore_that_needs_more_than_its_memory_says_so(open_gvisor: OpenGVisor) -> None:
    bench = await open_gvisor({"large": "HELD = b'x' * (100 << 20)"})
    checkpoint = await bench.checkpoint("large")

    with pytest.raises(StartError, match="it ran out of memory"):
        await bench.start(checkpoint, limits=Limits(memory=64 * MEBIBYTE))


async def test_a_restore_that_hangs_is_given_up(open_gvisor: OpenGVisor, flaky: FlakyRunsc) -> None:
    bench = await open_gvisor(runsc=flaky.path, start_deadline=3.0)
    checkpoint = await bench.checkpoint("decimal")
    flaky.order("exec sleep 300")

    with pytest.raises(StartError, match="not up after 3 s"):
        await bench.runtime.restore(checkpoint, new_spec())
    assert sandboxes_left(bench) == []


async def test_an_executor_that_cannot_start_is_told_with_its_last_words(
    open_gvisor: OpenGVisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await open_gvisor()
    shape = bench.runtime._launcher.shape  # type: ignore[attr-defined]
    broken = dataclasses.replace(shape, command=(shape.command[0], "-I", "-m", "no_such_module"))
    bench.runtime._launcher.shape = broken  # type: ignore[attr-defined]

    with pytest.raises(StartError, match="No module named no_such_module"):
        await bench.runtime.cold(new_spec())
    assert sandboxes_left(bench) == []


async def test_an_import_that_fails_refuses_the_capture_and_leaves_no_image(bench: Bench) -> None:
    with pytest.raises(CheckpointRefusedError, match="no_such_module"):
        await bench.checkpoint("no_such_module")
    [folder] = bench.kit.checkpoints.iterdir()  # type: ignore[attr-defined]
    assert list(folder.iterdir()) == []
    assert sandboxes_left(bench) == []


async def test_a_module_that_holds_a_socket_refuses_the_capture_by_name(
    open_gvisor: OpenGVisor,
) -> None:
    bench = await open_gvisor({"holder": "import socket\nKEPT = socket.socket()\n"})

    with pytest.raises(CheckpointRefusedError, match="holder left open"):
        await bench.checkpoint("holder")


async def test_secrets_of_the_capturing_process_are_not_in_the_image(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "LEAKME-59b1")
    checkpoint = await bench.checkpoint("decimal")

    assert checkpoint.path is not None
    for file in checkpoint.path.iterdir():
        assert b"LEAKME-59b1" not in file.read_bytes()


async def test_a_refused_build_keeps_the_worker_from_starting(tmp_path: Path, runsc: Path) -> None:
    old = tmp_path / "runsc"
    old.write_text("#!/bin/sh\necho runsc version 0.0~20221219.0\n")
    old.chmod(0o755)

    with pytest.raises(RuntimeUnavailableError, match="older than"):
        await GVisorRuntime(tmp_path / "run", runsc=old).open()


async def test_a_measured_restore_ends_by_itself(bench: Bench) -> None:
    checkpoint = await bench.checkpoint("decimal")
    assert checkpoint.path is not None

    seconds = await bench.runtime.measure(  # type: ignore[attr-defined]
        checkpoint.path, limits=new_spec().limits, deadline=60
    )

    assert seconds > 0
    assert sandboxes_left(bench) == []
