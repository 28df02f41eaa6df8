"""Measuring real modules in real processes: what they load, what they cost, how they fail."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.interpreter import INVENTORY, PROBE, Interpreter, network_off
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.journal import JournalledProber
from readie_pipeline.measure.metadata import Metadata, dump_metadata, load_metadata
from readie_pipeline.measure.probing import Answer, LocalProber, ProbeRequest
from readie_pipeline.measure.surveying import dependencies_of, survey, units_in
from support.made_up_packages import Environment
from support.probers import PatientProber

MEGABYTES = "ballast = [bytes(1000) + str(n).encode() for n in range({thousands} * 1000)]\n"
# By the clock that measures it: noise of the machine is far less.
TAKES_100_S = "import time; clock = time.perf_counter; time.perf_counter = lambda: clock() + 100\n"


def all_of(names: Sequence[str], _: str) -> Iterable[str]:
    return names


def measure(
    interpreter: Interpreter,
    *names: str,
    hanging: Mapping[str, float] | None = None,
    excluded: Sequence[str] = (),
) -> Metadata:
    prober = PatientProber(interpreter, hanging or {})
    return survey(names, prober, Inventory.take(interpreter), repeats=1, excluded=excluded)


@pytest.fixture
def shop(environment: Environment, interpreter: Callable[[], Interpreter]) -> Interpreter:
    environment.install(
        "Base_Lib",
        "1.2.3",
        {
            "base/__init__.py": TAKES_100_S + MEGABYTES.format(thousands=20),
            "base/more.py": "",
        },
    )
    environment.install(
        "top",
        "4.5",
        {"top/__init__.py": "import base.more\n" + MEGABYTES.format(thousands=5), "top/sub.py": ""},
    )
    return interpreter()


def test_a_module_is_charged_only_for_its_own_part(shop: Interpreter) -> None:
    found = measure(shop, "top").items
    assert set(found) == {"base", "top"}
    assert found["top"].dependencies == ("base",)
    assert found["top"].load_time < 100 < found["base"].load_time
    assert 15 < found["base"].size_mb < 60
    assert 3 < found["top"].size_mb < 15


def test_distribution_version_disk_and_modules_are_recorded(shop: Interpreter) -> None:
    metadata = measure(shop, "top.sub")
    base = metadata.items["base"]
    assert (base.distribution, base.version) == ("base-lib", "1.2.3")
    assert base.disk_mb >= 0
    assert set(metadata.items["top"].modules) == {"base", "base.more", "top"}
    assert metadata.items["top.sub"].dependencies == ("base", "top")
    assert metadata.distributions == {"base-lib": "1.2.3", "top": "4.5"}


def test_metadata_reads_back_as_it_was_written(shop: Interpreter) -> None:
    metadata = measure(shop, "top", "nowhere")
    assert load_metadata(dump_metadata(metadata)) == metadata


def test_what_a_process_holds_follows_from_its_imports(shop: Interpreter) -> None:
    metadata = measure(shop, "top", "base.more")
    assert metadata.held_by(["top"]) == ("base", "base.more", "top")
    assert metadata.held_by(["base"]) == ("base",)
    assert metadata.held_by(["json"]) == ()


def test_packages_of_a_namespace_are_items_of_their_own(
    environment: Environment, interpreter: Callable[[], Interpreter]
) -> None:
    environment.install("cloud-one", "1", {"cloud/one/__init__.py": "import cloud.two.deep"})
    environment.install(
        "cloud-two", "2", {"cloud/two/__init__.py": "", "cloud/two/deep.py": "value = 1"}
    )
    found = measure(interpreter(), "cloud.one").items
    assert {name: item.distribution for name, item in found.items()} == {
        "cloud.one": "cloud-one",
        "cloud.two": "cloud-two",
    }
    assert found["cloud.one"].dependencies == ("cloud.two",)


def test_two_modules_that_load_each_other_are_charged_once(
    environment: Environment, interpreter: Callable[[], Interpreter]
) -> None:
    environment.install(
        "ring",
        "1",
        {"left.py": TAKES_100_S + "import right", "right.py": "import left"},
    )
    found = measure(interpreter(), "left", "right").items
    assert found["left"].dependencies == ()
    assert found["right"].dependencies == ("left",)
    assert found["right"].load_time < 100 < found["left"].load_time


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(7)", "ended with exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        (
            "import sys; sys.stderr.write('no GPU\\n'); import os; os.abort()",
            "ended by SIGABRT: no GPU",
        ),
        ("import time; time.sleep(600)", "took longer than 2 s"),
        ("x = (", "SyntaxError"),
    ],
)
def test_one_bad_package_does_not_stop_the_others(
    environment: Environment,
    interpreter: Callable[[], Interpreter],
    source: str,
    reason: str,
) -> None:
    environment.install("bad", "1", {"bad.py": source})
    environment.install("good", "1", {"good.py": ""})
    hanging = {"bad": 2.0} if "sleep" in source else {}
    found = measure(interpreter(), "bad", "good", hanging=hanging)
    assert set(found.items) == {"good"}
    assert reason in found.failures["bad"]


def test_a_noisy_package_is_measured_in_silence(
    environment: Environment,
    interpreter: Callable[[], Interpreter],
    capfd: pytest.CaptureFixture[str],
) -> None:
    environment.install("noisy", "1", {"noisy.py": "import os; os.write(1, b'x' * 10_000_000)"})
    assert "noisy" in measure(interpreter(), "noisy").items
    assert capfd.readouterr() == ("", "")


def test_the_measured_process_sees_nothing_of_our_environment(
    environment: Environment,
    interpreter: Callable[[], Interpreter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "LEAKME")
    monkeypatch.setenv("PYTHONPATH", str(environment.folder))
    environment.install(
        "nosy",
        "1",
        {"nosy.py": "import os; assert 'LEAKME' not in os.environ.values(), 'leaked'"},
    )
    found = measure(interpreter(), "nosy")
    assert found.failures == {}


def test_processes_that_a_package_leaves_behind_are_ended(
    environment: Environment, interpreter: Callable[[], Interpreter], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    environment.install(
        "spawner",
        "1",
        {
            "spawner.py": f"""
            import subprocess, pathlib
            child = subprocess.Popen(["sleep", "600"])
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
            """
        },
    )
    measure(interpreter(), "spawner")
    pid = int(note.read_text())
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, "the package's child is still running"
        time.sleep(0.01)


def test_a_process_that_goes_on_writing_fails_no_measurement(
    environment: Environment, interpreter: Callable[[], Interpreter], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    environment.install(
        "litterer",
        "1",
        {
            "litterer.py": f"""
            import os, pathlib, time
            pid = os.fork()
            if pid == 0:
                os.setsid()
                for number in range(100_000):
                    pathlib.Path(str(number)).touch()
                os._exit(0)
            pathlib.Path({str(pids)!r}, str(pid)).touch()
            while not pathlib.Path("0").exists():
                time.sleep(0.01)
            """
        },
    )
    try:
        found = measure(interpreter(), "litterer")
    finally:
        for note in pids.iterdir():
            with suppress(ProcessLookupError):  # it found its folder gone
                os.kill(int(note.name), signal.SIGKILL)
    assert (set(found.items), found.failures) == ({"litterer"}, {})


def is_running(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture
def walled(interpreter: Callable[[], Interpreter]) -> Interpreter:
    """Its processes see no others."""
    wrapper = network_off()
    if wrapper is None or "--pid" not in wrapper:
        pytest.skip("`unshare --pid` does not work here")
    base = interpreter()
    return Interpreter(base.home, base.python, wrapper)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os._exit(0)", "ended with exit code 0 before it was imported"),
        ("import os; os._exit(7)", "ended with exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("import sys, os; sys.stderr.write('no GPU\\n'); os.abort()", "ended by SIGABRT: no GPU"),
        ("import time; time.sleep(600)", "took longer than 2 s"),
        ("import os, signal; os.killpg(0, signal.SIGKILL)", "ended by SIGKILL"),
    ],
)
def test_behind_walls_a_bad_end_is_told_the_same(
    environment: Environment, walled: Interpreter, source: str, reason: str
) -> None:
    environment.install("bad", "1", {"bad.py": source})
    hanging = {"bad": 2.0} if "sleep" in source else {}
    assert measure(walled, "bad", hanging=hanging).failures == {"bad": reason}


@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_package_that_would_end_whoever_started_it_ends_nobody(
    environment: Environment, walled: Interpreter, signal_name: str
) -> None:
    environment.install(
        "hitman",
        "1",
        {"hitman.py": f"import os, signal; os.kill(os.getppid(), signal.{signal_name})"},
    )
    found = measure(walled, "hitman")
    assert (set(found.items), found.failures) == ({"hitman"}, {})


def test_a_package_that_leaves_a_daemon_behind_leaves_none(
    environment: Environment, walled: Interpreter, tmp_path: Path
) -> None:
    # The daemon holds the pipe's other end, so its end is the end of the file.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    environment.install(
        "daemon",
        "1",
        {
            "daemon.py": f"""
            import os, time
            if os.fork() == 0:
                os.setsid()
                with open({str(pipe)!r}, "wb", buffering=0) as file:
                    file.write(b"here")
                    time.sleep(600)
            with open({str(pipe)!r}, "wb"):
                pass  # until the reader is there, and so is the daemon
            """
        },
    )
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "daemon" in measure(walled, "daemon").items
        assert read_to_the_end(reader).startswith(b"here")
    finally:
        os.close(reader)


def read_to_the_end(descriptor: int, deadline_s: float = 20) -> bytes:
    ended, data = time.monotonic() + deadline_s, b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, ended - time.monotonic()))
        assert ready, "the daemon is still running"
        chunk = os.read(descriptor, 100)
        if not chunk:
            return data
        data += chunk


def test_an_interpreter_that_does_not_work_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="no-such-python"):
        Inventory.take(Interpreter(tmp_path, Path("/no-such-python")))


def test_the_network_can_be_taken_away(interpreter: Callable[[], Interpreter]) -> None:
    wrapper = network_off()
    if wrapper is None:
        pytest.skip("`unshare --net` does not work here")
    base = interpreter()
    offline = Interpreter(base.home, base.python, wrapper)
    script = base.home / "interfaces.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps(os.listdir('/proc/self/net/dev_snmp6')))\n"
    )
    assert offline.run(script, {}, 30) == ["lo"]


def test_programs_inside_run_on_the_standard_library_alone() -> None:
    for program in (PROBE, INVENTORY):
        text = program.read_text()
        assert "readie" not in text.replace("readie_pipeline.measure.inside", "")


@pytest.mark.parametrize(
    ("modules", "units"),
    [
        ({"numpy": "module", "numpy.linalg": "module"}, {"numpy"}),
        (
            {"google": "namespace", "google.auth": "module", "google.auth.x": "module"},
            {"google.auth"},
        ),
        ({"google": "namespace"}, set()),
        ({"_cyutility": "odd", "x": "module"}, {"x"}),
        ({"lost.child": "module"}, set()),
    ],
)
def test_modules_belong_to_the_package_that_is_imported(
    modules: dict[str, str], units: set[str]
) -> None:
    assert set(units_in(modules)) == units


def test_dependencies_come_before_what_needs_them() -> None:
    found = dependencies_of({"c": ["c", "b", "a"], "b": ["b", "a"], "a": ["a", "x.y"]})
    assert found == {"c": ["a", "b"], "b": ["a"], "a": []}


def test_excluded_packages_are_not_imported_by_themselves(shop: Interpreter) -> None:
    metadata = measure(shop, "top", "top.sub", "base.more", excluded=["base", "top.sub"])
    assert set(metadata.items) == {"top"}
    assert metadata.failures == {}


def test_packages_without_a_list_of_their_files_are_found_too(
    environment: Environment, interpreter: Callable[[], Interpreter], tmp_path: Path
) -> None:
    """As Debian and conda install them, and editable installs."""
    environment.install("whole", "1", {"whole.py": "", "meta.py": ""})
    for name, top_level in (("Deb-One", "debian_one\ngone\n"), ("edited", ""), ("meta", "")):
        environment.install(name, "1", {})
        (info,) = environment.site_packages.glob(f"{name.replace('-', '_')}-1.dist-info")
        (info / "RECORD").unlink()
        (info / "top_level.txt").write_text(top_level)
    (environment.site_packages / "debian_one").mkdir()
    (environment.site_packages / "debian_one/__init__.py").write_text("")
    (environment.site_packages / "debian_one/part.py").write_text("")
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/edited.py").write_text("")
    (environment.site_packages / "edited.pth").write_text(f"{tmp_path}/checkout\n")
    inventory = Inventory.take(interpreter())
    assert inventory.packages == {"debian_one", "edited", "meta", "whole"}
    assert inventory.existing(["debian_one.part.x", "edited"]) == {
        "debian_one.part.x": "debian_one.part",
        "edited": "edited",
    }
    assert inventory.providers(["debian_one", "edited", "meta"]) == {
        "debian_one": "deb-one",
        "edited": "edited",
        "meta": "whole",
    }


def test_the_packages_of_an_environment_are_listed(
    shop: Interpreter, environment: Environment
) -> None:
    environment.install(
        "cloud-one", "1", {"cloud/one/__init__.py": "", "cloud/one/x.py": "", "tests/a.py": ""}
    )
    inventory = Inventory.take(shop)
    assert inventory.packages == {"base", "top", "cloud.one"}
    assert inventory.existing(["base.more.thing", "top.attribute", "cloud", "torch.nn"]) == {
        "base.more.thing": "base.more",
        "top.attribute": "top",
    }


def test_an_interrupted_run_goes_on_where_it_was(shop: Interpreter, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    inventory = Inventory.take(shop)
    asked: list[str] = []

    class StopsAfterTwo(LocalProber):
        def __call__(
            self, requests: Sequence[ProbeRequest], doing: str
        ) -> Iterator[tuple[ProbeRequest, Answer]]:
            for request, answer in super().__call__(requests, doing):
                if len(asked) == 2:
                    raise KeyboardInterrupt
                asked.append(request.module)
                yield request, answer

    def run(kind: type[LocalProber]) -> Metadata:
        prober = JournalledProber(kind(shop, 30, all_of), journal, inventory.fingerprint())
        return survey(["top", "nowhere"], prober, inventory, repeats=2)

    with pytest.raises(KeyboardInterrupt):
        run(StopsAfterTwo)
    with journal.open("a") as file:
        file.write('["half a li')
    lines = journal.read_text().count("\n")
    assert lines == 1 + 2
    for _ in range(2):
        resumed = run(LocalProber)
        assert set(resumed.items) == {"base", "top"}
        assert set(resumed.failures) == {"nowhere"}


def test_a_journal_of_another_environment_is_not_believed(
    shop: Interpreter, environment: Environment, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"

    def run() -> Metadata:
        inventory = Inventory.take(shop)
        prober = LocalProber(shop, 30, all_of)
        journalled = JournalledProber(prober, journal, inventory.fingerprint())
        return survey(["extra"], journalled, inventory, repeats=1)

    assert run().items == {}
    environment.install("extra", "1", {"extra.py": ""})
    assert set(run().items) == {"extra"}
