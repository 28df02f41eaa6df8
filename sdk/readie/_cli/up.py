"""``readie up``: starts queue, gateway and workers, keeps them running, and stops them in order."""

import contextlib
import errno
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

import click

from readie import _settings
from readie._cli import installed, valkey
from readie._cli.children import Child
from readie._cli.data_folder import DataFolder
from readie._cli.warm_folder import ImportSets, WarmFolder, manifests
from readie._cli.warming import Fleet, Warming, problems, refusals
from readie._client import Client
from readie._errors import ReadieError
from readie._steps import drive

START_S = 60.0  # for each part; a busy machine needs a few
LOAD_S = 30.0  # to hold a generation; after that it is told as it is
POLL_S = 0.05
WATCH_S = 0.5  # between looks at whether all children are alive
# Workers let running calls end (30 s by default), then the gateway tells its clients.
STOP_S = 45.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for. ``warm``: make checkpoints, of these import sets if any."""

    host: str
    port: int
    data_dir: Path | None
    generations: Path | None
    runtime: str
    workers: int
    slots: int | None
    warm: bool
    imports: ImportSets


class _Stopped(BaseException):
    """SIGINT or SIGTERM came."""


def bring_up(wish: Wish) -> None:
    """Run until a signal comes. Raises `click.ClickException` when a part does not come up."""
    if missing := installed.missing_libraries():
        raise click.ClickException(
            f"gateway and worker are not installed ({', '.join(missing)} missing); get them with: "
            f"{installed.HOW_TO_GET}"
        )
    with _kept_port(wish.host, wish.port) as port:
        _bring_up(wish, port)


def _bring_up(wish: Wish, port: int) -> None:
    server = valkey.require_server()
    folder = DataFolder(wish.data_dir)
    folder.acquire()
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    supervisor = _Supervisor(folder, wish, server, port)
    told = False
    try:
        supervisor.start()
        folder.announce(supervisor.url)
        supervisor.tell()
        supervisor.watch()
    except _Stopped:
        told = True
    finally:
        supervisor.stop(told=told)
        folder.withdraw()
        folder.release()


class _Supervisor:
    def __init__(self, folder: DataFolder, wish: Wish, server: valkey.Server, port: int) -> None:
        self._folder = folder
        self._wish = wish
        self._server = server
        self._socket = valkey.socket_path(folder.folder("valkey"))
        self._children: list[Child] = []
        self._environment = _settings.environment()
        # A bucket, where the environment names one, is what workers and gateway follow instead; with
        # a folder given as well, they say that they can serve only one of the two.
        self._from_folder = "READIE_BUCKET" not in self._environment or bool(wish.generations)
        self._warm_folder = WarmFolder(
            folder.folder("generations"), asked=bool(wish.imports or wish.generations)
        )
        visible = _dialled(wish.host)
        self.url = f"http://{f'[{visible}]' if ':' in visible else visible}:{port}"
        self._port = port
        self._token = folder.ensure_token()
        self._warming = Warming(
            self._warm_folder,
            Fleet(
                lambda: self._workers() or (),
                self._prices,
                self._recorded_calls,
                ["--recorded", self.url, "--token-file", str(folder.token_file)],
            ),
            lambda command: self._child("warming", command, {}),
            given=wish.generations,
            imports=wish.imports,
        )

    def start(self) -> None:
        """The queue first; gateway and workers, which need only that, at the same time."""
        if self._wish.generations is not None:
            self._warm_folder.serve(self._wish.generations)
        else:
            self._warm_folder.serve_own(self._wish.runtime)
        command = valkey.command(self._server, self._folder.folder("valkey"), self._socket)
        queue = self._add("queue", command, {})
        self._until("the queue", lambda: valkey.answers(self._socket), queue)
        gateway = self._add("gateway", [sys.executable, "-m", "readie_gateway"], self._settings())
        workers = []
        for number in range(1, self._wish.workers + 1):
            name = "worker" if self._wish.workers == 1 else f"worker {number}"
            data = self._folder.folder("workers", str(number))
            settings = self._settings() | {"READIE_DATA_DIR": str(data)}
            workers.append(self._add(name, [sys.executable, "-m", "readie_worker"], settings))
        count = len(workers)
        # By itself and not by what it serves: without a worker it is not ready.
        self._until("the gateway", lambda: self._workers() is not None, gateway)
        self._until("the workers", lambda: len(self._workers() or ()) >= count, *workers)
        if self._from_folder:
            self._await_generations()

    def tell(self) -> None:
        """What a person needs to know to use it."""
        workers = self._workers() or [{}]
        runtime = workers[0].get("runtime", "unknown")
        refused = [*refusals(workers[:1]), *problems(workers[:1])]  # told with the checkpoints
        notes = workers[0].get("notes", ())
        why = "; ".join(note for note in notes if not any(reason in note for reason in refused))
        slots = sum(worker.get("slots", 0) for worker in workers)
        click.echo(f"Readie is running at {self.url}")
        for label, text in (
            ("token", f"in {self._folder.token_file}"),
            ("runtime", why if why.startswith(runtime) else f"{runtime} {why}"),
            ("workers", f"{len(workers)} with {slots} slots"),
            ("checkpoints", self._held_by(workers)),
            ("queue", str(self._server)),
            ("data", str(self._folder.path)),
        ):
            click.echo(f"  {label:<12} {text}")
        if runtime == "fork" and not _is_loopback(self._wish.host):
            click.echo(
                f"warning: {self._wish.host} is reachable from other machines, and the fork runtime "
                "isolates nothing: it takes no calls from there. Use --runtime gvisor, or --host "
                "127.0.0.1, or set READIE_ALLOW_UNSANDBOXED=true if you trust every caller.",
                err=True,
            )
        click.echo("Python on this machine finds it by itself. Ctrl-C stops it.")

    def _held_by(self, workers: Sequence[Mapping[str, Any]]) -> str:
        counts = {
            facts["generation"]: len(facts["checkpoints"])
            for worker in workers
            for facts in worker.get("generations", ())
        }
        held = ", ".join(
            f"{count} of {name}{_lacking(workers, name, count)}"
            for name, count in counts.items()
            if count
        )
        given = self._wish.generations
        if held or not (given or counts):
            none = "none: every call imports for itself"
            return held or (none if self._from_folder else "none yet: they come from READIE_BUCKET")
        found = dict.fromkeys((*problems(workers), *refusals(workers)))
        reasons = "; ".join(found) or "see the worker's log"
        return f"none of {given or ', '.join(counts)}: {reasons}"

    def watch(self) -> None:
        """Keep every child running, make checkpoints where there are none.

        Raises `click.ClickException` for a child that keeps ending.
        """
        if self._wish.warm and self._from_folder:
            self._warming.begin()
        while True:
            time.sleep(WATCH_S)
            self._warming.look()
            for child in self._children:
                if child.has_ended() and child.is_due():
                    if not child.may_restart():
                        raise click.ClickException(child.last_words())
                    click.echo(f"starting again: {child.last_words().splitlines()[0]}", err=True)
                    child.start()

    def stop(self, *, told: bool) -> None:
        """Workers finish and store what runs, then the gateway tells its clients, then the queue
        writes its file. Another signal meanwhile kills what is left."""
        try:
            if told:
                click.echo("stopping: workers, gateway, queue (once more to stop at once)")
            workers = [child for child in self._children if child.name.startswith("worker")]
            for child in workers:
                child.ask_to_stop()
            self._warming.stop()
            for child in workers:
                child.wait(STOP_S)
            for child in reversed(self._children[:2]):
                child.ask_to_stop()
                child.wait(STOP_S)
        except _Stopped:
            for child in self._children:
                child.kill()
        if self._socket.parent.name.startswith("readie-"):
            shutil.rmtree(self._socket.parent, ignore_errors=True)

    def _add(self, name: str, command: list[str], settings: dict[str, str]) -> Child:
        child = self._child(name, command, settings)
        self._children.append(child)
        return child

    def _child(self, name: str, command: list[str], settings: dict[str, str]) -> Child:
        environment = self._environment | settings
        environment.pop("READIE_AUTH_TOKEN", None)  # theirs is the token file
        log = self._folder.folder("logs") / f"{name.replace(' ', '-')}.log"
        log.unlink(missing_ok=True)
        child = Child(name, command, environment, log)
        child.start()
        return child

    def _settings(self) -> dict[str, str]:
        wish = self._wish
        settings = {
            "READIE_REDIS_URL": f"unix://{self._socket}?db=0",
            "READIE_BLOB_URL": self._folder.folder("objects").as_uri(),
            "READIE_TOKEN_FILE": str(self._folder.token_file),
            "READIE_SEAL_KEY_FILE": str(self._folder.ensure_seal_key()),
            "READIE_HOST": wish.host,
            "READIE_PORT": str(self._port),
            "READIE_RUNTIME": wish.runtime,
        }
        if self._from_folder:
            settings["READIE_GENERATIONS_DIR"] = str(self._warm_folder.link)
            settings["READIE_GENERATIONS_LATER"] = str(wish.generations is None)
        if wish.slots is not None:
            settings["READIE_SLOTS"] = str(wish.slots)
        return settings

    def _workers(self) -> list[dict[str, Any]] | None:
        """Those of this run, as the gateway describes them; None while it does not answer.

        Of a run that was killed, records are left in the queue's file until they expire.
        """
        pids = {child.pid for child in self._children}
        try:
            with socket.create_connection((_dialled(self._wish.host), self._port), 1):
                pass
            with Client(self.url, self._token) as client:
                return [one for one in client.workers() if one.get("pid") in pids]
        except (OSError, ReadieError):
            return None

    def _prices(self, generation: str) -> bool:
        """Whether the gateway prices calls for it: its catalogue may come a moment after the images."""
        try:
            with Client(self.url, self._token) as client:
                held = drive(client._service().get("/generations"))["generations"]
        except ReadieError:
            return False
        return any(one["generation"] == generation and one.get("priced") for one in held)

    def _recorded_calls(self) -> int:
        """How many calls that import something the gateway has counted; 0 where it keeps none."""
        try:
            with Client(self.url, self._token) as client:
                counted = drive(client._service().get_lines("/imports"))
        except (ReadieError, ValueError):
            return 0
        return sum(int(one["count"]) for one in counted if one["imports"])

    def _await_generations(self) -> None:
        """Until every worker holds all of it or says why not. Calls run meanwhile; they start cold."""
        wanted = {
            manifest.flavor: len(manifest.checkpoints)
            for manifest in manifests(self._warm_folder.link)
        }
        if not wanted and self._wish.generations is None:
            return  # one will be made
        deadline = time.monotonic() + LOAD_S
        while time.monotonic() < deadline:
            workers = self._workers() or []
            if workers and all(_has_loaded(worker, wanted) for worker in workers):
                return
            time.sleep(POLL_S)

    def _until(self, what: str, holds: Callable[[], bool], *children: Child) -> None:
        deadline = time.monotonic() + START_S
        while not holds():
            for child in children:
                if child.has_ended():
                    raise click.ClickException(f"{what} did not come up: {child.last_words()}")
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"{what} did not come up within {START_S:g} s; see {self._folder.path / 'logs'}"
                )
            time.sleep(POLL_S)


def _lacking(workers: Sequence[Mapping[str, Any]], generation: str, count: int) -> str:
    """What becomes of those of a generation that are not held, as the end of a sentence."""
    listed = [
        len(held["checkpoints"])
        for worker in workers
        for held in worker.get("holding", {}).get("generations", ())
        if held["generation"] == generation
    ]
    lacking = max(listed, default=count) - count
    if lacking <= 0:
        return ""
    reasons = "; ".join(dict.fromkeys(refusals(workers, generation)))
    return f", {lacking} more " + (f"cannot be used here: {reasons}" if reasons else "follow")


def _has_loaded(worker: Mapping[str, Any], wanted: Mapping[str, int]) -> bool:
    """Whether it has taken or refused each of them."""
    held = sum(len(facts["checkpoints"]) for facts in worker.get("generations", ()))
    refused = len(refusals([worker]))
    there = wanted.get(str(worker.get("flavor")), 1)  # of a folder without one, a problem is told
    return held + refused >= there or bool(problems([worker]))


@contextlib.contextmanager
def _kept_port(host: str, port: int) -> Iterator[int]:
    """``port``, or a free one for 0, kept for the gateway. Raises `click.ClickException` when taken.

    Linux lets two sockets that both ask for it share an address while one of them listens, and gives
    a free port to nobody who has not named it. Elsewhere the port is only looked at.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        kept = socket.socket(family, kind, protocol)
        try:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(address)
        except OSError:
            kept.close()
            raise
    except OSError as error:
        elsewhere = "another port with --port N, or --port 0 for any free one"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            elsewhere = "an address of this machine with --host, such as 127.0.0.1"
        raise click.ClickException(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose {elsewhere}"
        ) from error
    with kept:
        found: int = kept.getsockname()[1]
        if sys.platform != "linux":
            kept.close()
        yield found


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # a name: whatever it stands for may change


def _dialled(host: str) -> str:
    return "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped
