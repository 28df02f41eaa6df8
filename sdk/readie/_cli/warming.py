"""Makes checkpoints in the background while ``readie up`` serves without any, and lets them serve.

What is made and how is the pipeline's own: it runs as a child process of low priority. Here is when
that is needed, what is said of it, and which generation gateway and workers are led to.
"""

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from readie._cli import installed
from readie._cli.children import Child
from readie._cli.warm_folder import ImportSets, Origin, WarmFolder, changes_since, manifests
from readie_wire.manifest import Manifest

LIMIT_S = 900.0  # an environment with everything in it takes minutes at low priority
SERVED_S = 120.0  # for workers to hold what was captured: zygotes import for seconds each
STOP_S = 15.0  # to end the sandboxes of a capture that is broken off
LEAST_DISK = 2 << 30  # bytes free: images of eight checkpoints, and as much left for results
LOOK_S = 1.0  # between questions to the gateway
NAMED = 8  # packages in one line
ENOUGH_CALLS = 100  # recorded ones; what a few import may be chance
_BUG = "Traceback (most recent call last):"  # what follows it is for the log alone

Workers = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the gateway can be asked: its workers, whether it prices calls for a generation, and how
    many calls it has recorded the imports of. ``options`` let the pipeline ask it for these."""

    workers: Callable[[], Workers]
    prices: Callable[[str], bool]
    recorded: Callable[[], int]
    options: Sequence[str] = ()


class Warming:
    """One for each ``readie up``; `begin` once, then `look` now and then, `stop` at the end.

    ``child`` starts a command. ``given`` is the user's own folder of generations, which is served
    as long as any of it can be restored; ``imports`` are the import sets that were asked for.
    """

    def __init__(
        self,
        folder: WarmFolder,
        fleet: Fleet,
        child: Callable[[list[str]], Child],
        *,
        given: Path | None,
        imports: ImportSets,
    ) -> None:
        self._folder = folder
        self._fleet = fleet
        self._make_child = child
        self._given = given
        self._imports = imports
        self._child: Child | None = None
        self._steps: Iterator[None] = iter(())

    def begin(self) -> None:
        """Workers are up, and have loaded what they can of what the link leads to."""
        self._steps = self._run()

    def look(self) -> None:
        """Go on as far as that is possible without waiting. Calls run on whatever goes wrong here."""
        try:
            next(self._steps, None)
        except OSError as error:
            self._steps = iter(())
            _say(f"goes on no more: {error}")

    def stop(self) -> None:
        """End the child; what it has done so far is there for the next one."""
        if self._child is not None:
            self._child.ask_to_stop()
            self._child.wait(STOP_S)

    def _run(self) -> Iterator[None]:
        workers = self._fleet.workers()
        if not workers or (self._given is not None and (_held(workers) or problems(workers))):
            return  # all is well, or nothing that a generation would mend
        flavor, runtime = str(workers[0]["flavor"]), str(workers[0]["runtime"])
        place = self._folder.place(flavor, runtime)
        imports = self._wanted(flavor)
        calls = 0 if imports else self._fleet.recorded()
        calls = calls if calls >= ENOUGH_CALLS else 0
        reason = self._reason(workers, place, imports, calls)
        present = self._folder.newest(place)
        if not reason and present is not None and not self._folder.serves(present):
            yield from self._serve(present)
            reason = "" if _held(self._fleet.workers()) else _refusals(self._fleet.workers())
        if reason and self._is_possible(runtime):
            _say(f"makes checkpoints in the background, because {reason}")
            options = ["--folder", str(place), "--flavor", flavor, "--runtime", runtime]
            options += self._fleet.options if calls else []
            yield from self._make(place, options, Origin.here(imports, calls))

    def _wanted(self, flavor: str) -> ImportSets:
        """The import sets to capture; none lets the pipeline choose."""
        if self._given is None:
            return [tuple(imports) for imports in self._imports]
        return [
            tuple(checkpoint.imports)
            for manifest in manifests(self._given)
            if manifest.flavor == flavor
            for checkpoint in manifest.checkpoints
            if checkpoint.imports
        ]

    def _reason(self, workers: Workers, place: Path, imports: ImportSets, calls: int) -> str:
        """Why a generation is to be made; empty when the one that is there will do."""
        present = self._folder.newest(place)
        if present is None:
            if self._given is not None:
                return f"{self._given} cannot be restored here: {_refusals(workers)}"
            return "there are none"
        origin = self._folder.made_from(place)
        if origin is None:
            return "it is not known what those that are there were made from"
        if list(origin.imports) != list(imports):
            return "others are asked for"
        if calls and not origin.calls:
            return f"{calls} calls have shown what they import"
        if changes := changes_since(present, origin.distributions):
            return _few(changes)
        if self._folder.serves(present) and not _held(workers):
            return _refusals(workers)
        return ""

    def _is_possible(self, runtime: str) -> bool:
        if missing := installed.missing_for_pipeline():
            _say(
                f"no checkpoints are made: {', '.join(missing)} missing; get the pipeline with: "
                f"{installed.HOW_TO_GET_PIPELINE}"
            )
            return False
        free = shutil.disk_usage(self._folder.root).free
        if runtime == "gvisor" and free < LEAST_DISK:
            _say(
                f"no checkpoints are made: {free / 1e9:.1f} GB free, {LEAST_DISK / 1e9:.1f} needed"
            )
            return False
        return True

    def _make(self, place: Path, options: list[str], origin: Origin) -> Iterator[None]:
        self._folder.drop_older(place)
        before = self._folder.newest(place)
        for one in origin.imports:
            options += ["--imports", ",".join(one)]
        command = [sys.executable, "-m", "readie_pipeline", "warm", *options]
        began = time.monotonic()
        self._child = child = self._make_child(command)
        told = 0
        while not child.has_ended():
            yield
            told = _repeat(child.log, told)
            if time.monotonic() - began > LIMIT_S:
                self.stop()
                _say(f"not done within {LIMIT_S / 60:g} min; the next start goes on from here")
                return
        _repeat(child.log, told)
        made = self._folder.newest(place)
        if made is None or made == before:
            _say(f"no checkpoints were made; calls import for themselves. See {child.log}")
            return
        self._folder.note(place, origin)
        if (yield from self._serve(made)):
            _say(f"took {time.monotonic() - began:.0f} s; the next start finds them")

    def _serve(self, generation: Path) -> Generator[None, None, bool]:
        """Lead gateway and workers there, and tell when they hold it, or that they do not."""
        self._folder.serve(generation)
        wanted = next(manifests(generation), None)
        if wanted is None:
            _say(f"{generation} has no manifest that can be read; remove the folder")
            return False
        deadline = time.monotonic() + SERVED_S
        held, served = 0, False
        while not served and time.monotonic() < deadline:
            yield from _pause()
            workers = self._fleet.workers()
            held = min((_count(worker, wanted.generation) for worker in workers), default=0)
            served = held == len(wanted.checkpoints) and self._fleet.prices(wanted.generation)
            if any(_has_refused(worker, wanted) for worker in workers):
                break
        modules = sorted(
            {name.partition(".")[0] for one in wanted.checkpoints for name in one.imports}
        )
        if held == 0:
            _say(
                f"generation {wanted.generation} is not served: {_refusals(self._fleet.workers())}"
            )
            return False
        _say(
            f"serves {held} checkpoints of {wanted.generation}: calls that import "
            f"{_few(modules)} start behind them from now on"
        )
        return True


def _pause() -> Iterator[None]:
    until = time.monotonic() + LOOK_S
    while time.monotonic() < until:
        yield


def _count(worker: Mapping[str, Any], generation: str) -> int:
    """How many checkpoints of a generation a worker can restore."""
    return sum(
        len(facts["checkpoints"])
        for facts in worker.get("generations", ())
        if facts["generation"] == generation
    )


def _has_refused(worker: Mapping[str, Any], wanted: Manifest) -> bool:
    """Whether a worker has looked at all of a generation and can use none of it."""
    refused = len(refusals([worker], wanted.generation))
    return refused >= len(wanted.checkpoints) and _count(worker, wanted.generation) == 0


def _held(workers: Workers) -> bool:
    return any(facts["checkpoints"] for one in workers for facts in one.get("generations", ()))


def problems(workers: Workers) -> Sequence[str]:
    """Why workers do not serve the generation that they were led to, each reason once."""
    told = (str(worker.get("holding", {}).get("problem", "")) for worker in workers)
    return [problem for problem in dict.fromkeys(told) if problem]


def refusals(workers: Workers, generation: str = "") -> Sequence[str]:
    """Why workers do not restore checkpoints, of one generation or of any: a reason for each."""
    return [
        str(checkpoint["refusal"]["reason"])
        for worker in workers
        for held in worker.get("holding", {}).get("generations", ())
        if generation in {"", held["generation"]}
        for checkpoint in held["checkpoints"].values()
        if checkpoint["refusal"] is not None
    ]


def _refusals(workers: Workers) -> str:
    reasons = list(dict.fromkeys(refusals(workers)))
    return _few(reasons) or "the workers do not take it, see their logs"


def _few(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def _repeat(log: Path, told: int) -> int:
    """Print what has come to the log in whole lines since ``told`` bytes of it; how many those are."""
    with log.open("rb") as file:
        file.seek(told)
        new = file.read()
    whole = new[: new.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines()
    for line in lines[: next((n for n, one in enumerate(lines) if one == _BUG), len(lines))]:
        _say(line)
    return told + len(whole)


def _say(text: str) -> None:
    click.echo(f"warming: {text}")
