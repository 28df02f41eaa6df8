"""Prepares a process to be saved whole, waits in it, and goes on in every process restored from it."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from readie_executor import hygiene, output
from readie_executor.environment import Surroundings
from readie_executor.preparing import Prepared, RefusedError, prepare
from readie_wire import hooks

READY_LINE = "READIE-CAPTURE-READY"
REFUSED_LINE = "READIE-CAPTURE-REFUSED"
POLL_S = 0.001  # the wait is part of every restore


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a restored process is told by a file: which clone it is, and that it is not another.

    ``entropy`` is fresh for each clone. ``measure``: end at once, only the restore is timed.
    """

    clone: str
    entropy: bytes
    checkpoint: str | None
    measure: bool


@dataclass(frozen=True, slots=True)
class Clone:
    """A restored process: what its ticket said, and its own private folders."""

    ticket: Ticket
    surroundings: Surroundings


def capture(names: Sequence[str], run_dir: str, surroundings: Surroundings) -> Clone | None:
    """Import, announce readiness on stdout in one line of JSON, and wait for the ticket.

    The process is saved while it waits; what comes after runs in each restored copy, which is made
    a fresh process here. `None`: refused, and said so on stdout.
    """
    try:
        prepared = prepare(names)
    except RefusedError as error:
        refusal = {"reason": str(error), "package": error.package, "traceback": error.trace}
        _announce(REFUSED_LINE, refusal)
        return None
    _announce(READY_LINE, {**prepared.report, "mapped_files": _mapped_files()})
    ticket = _wait_for_ticket(f"{run_dir}/ticket.json")
    # The folders of the capture are in every clone alike; a clone's own are named after it.
    clone = Clone(ticket, replace(surroundings, folder=f"{surroundings.folder}-{ticket.clone}"))
    if not ticket.measure:
        _become_clone(clone, prepared)
    return clone


def _become_clone(clone: Clone, prepared: Prepared) -> None:
    surroundings = clone.surroundings
    surroundings.create()
    surroundings.enter()
    output.configure()
    hygiene.settle(prepared.baseline)
    hygiene.freshen(prepared.generators, clone.ticket.entropy)
    hooks.run_after_restore()


def _mapped_files() -> list[str]:
    """Files whose pages this process has in its memory: a restore maps them again, by path."""
    with open("/proc/self/maps", "rb") as file:  # noqa: PTH123 - pathlib stays unloaded
        lines = file.read().decode(errors="surrogateescape").splitlines()
    # address, permissions, offset, device, inode, then the path, which may hold blanks
    fields = (line.split(None, 5) for line in lines)
    return sorted({found[5] for found in fields if len(found) == 6 and found[5][0] == "/"})


def _announce(word: str, content: object) -> None:
    output.write_line(f"{word} {json.dumps(content, separators=(',', ':'))}")


def _wait_for_ticket(path: str) -> Ticket:
    """Waits for ever: the process is saved or killed from outside."""
    while True:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib stays unloaded
                value = json.loads(file.read())
        except (OSError, ValueError):  # not there yet, or not complete yet
            time.sleep(POLL_S)
            continue
        return Ticket(
            clone=str(value["clone"]),
            entropy=bytes.fromhex(value.get("entropy", "")),
            checkpoint=value.get("checkpoint"),
            measure=bool(value.get("measure", False)),
        )
