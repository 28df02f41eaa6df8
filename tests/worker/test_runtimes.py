import os
from pathlib import Path

import pytest

from readie_worker import trials
from readie_worker.errors import ConfigurationError
from readie_worker.runtimes import RuntimeWishes, choose_runtime
from readie_worker.sandbox.errors import RuntimeUnavailableError
from support.gvisor_kit import real_runsc


def no_runsc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("readie_worker.runtimes.find_runsc", lambda: None)


async def test_auto_takes_fork_and_says_why_where_there_is_no_runsc(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runsc(monkeypatch)
    chosen = await choose_runtime(RuntimeWishes("auto", short_path, os.environ))
    await chosen.runtime.close()
    assert (chosen.runtime.name, chosen.network) == ("fork", "host")
    assert chosen.why.startswith("fork, because gvisor cannot be used")


async def test_auto_takes_gvisor_where_it_passes_its_test_and_remembers_that(
    short_path: Path,
) -> None:
    real_runsc()
    wishes = RuntimeWishes("auto", short_path, os.environ, network="none")
    for said in ("passed its self-test", "passed its self-test at an earlier start"):
        chosen = await choose_runtime(wishes)
        await chosen.runtime.close()
        assert (chosen.runtime.name, chosen.runtime.isolation) == ("gvisor", "gvisor")
        assert chosen.network == "none"
        assert said in chosen.why


def test_every_circumstance_calls_for_a_test_and_so_does_a_broken_note(tmp_path: Path) -> None:
    runsc = tmp_path / "runsc"
    runsc.write_bytes(b"one")
    folder = tmp_path / "not made yet"
    now = trials.circumstances(runsc)
    assert not trials.passed_before(folder, now)

    trials.note_pass(folder, now)
    assert trials.passed_before(folder, trials.circumstances(runsc))
    assert not any(trials.passed_before(folder, {**now, name: "other"}) for name in now)
    runsc.write_bytes(b"two")
    assert not trials.passed_before(folder, trials.circumstances(runsc))

    [note] = folder.iterdir()
    note.write_text("{")
    assert not trials.passed_before(folder, now)


async def test_a_runsc_that_fails_its_test_is_refused(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = short_path / "runsc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("readie_worker.runtimes.find_runsc", lambda: broken)
    with pytest.raises(RuntimeUnavailableError):
        await choose_runtime(RuntimeWishes("gvisor", short_path, os.environ))
    assert not trials.passed_before(short_path, trials.circumstances(broken))


async def test_a_runtime_that_was_asked_for_is_had_or_refused_with_the_remedy(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runsc(monkeypatch)
    with pytest.raises(RuntimeUnavailableError, match=r"root on Linux|infra/gvisor/install"):
        await choose_runtime(RuntimeWishes("gvisor", short_path, os.environ))


@pytest.mark.parametrize("network", ["sandbox", "none"])
async def test_a_network_that_was_asked_for_is_never_replaced_by_another(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    no_runsc(monkeypatch)
    with pytest.raises(ConfigurationError, match=f"READIE_NETWORK={network}"):
        await choose_runtime(RuntimeWishes("fork", short_path, os.environ, network=network))  # type: ignore[arg-type]
    with pytest.raises(RuntimeUnavailableError):
        await choose_runtime(RuntimeWishes("auto", short_path, os.environ, network=network))  # type: ignore[arg-type]
