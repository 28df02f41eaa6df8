"""What `build` and `capture` share: the capturer, what is installed here, and the summary."""

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from redis import Redis
from rich.table import Table

from readie_infra.objects import ObjectStore
from readie_pipeline.capture.building import Job, Report, build
from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.cataloguing import provided
from readie_pipeline.capture.fork import ForkCapturer
from readie_pipeline.capture.gvisor import GVisorCapturer
from readie_pipeline.commands import options
from readie_pipeline.commands.bucket_options import carrying_options
from readie_pipeline.commands.options import Decorator
from readie_pipeline.console import Terminal, short
from readie_pipeline.distributing.capturing import QueuedCaptures
from readie_pipeline.distributing.connecting import connect
from readie_pipeline.distributing.queues import LOST_AFTER_S
from readie_pipeline.errors import MeasureError, PipelineError
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan
from readie_worker.sandbox.selftest import find_runsc


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build. ``timeout`` in seconds for the imports of one checkpoint; ``runsc`` ``None``:
    the installed one; ``store`` is the bucket through which images come from workers."""

    runtime: str
    out: Path
    runsc: Path | None
    strict: bool
    timeout: float
    queue_url: str | None = None
    lost_after: float = LOST_AFTER_S
    store: ObjectStore | None = None

    def connect(self) -> Redis | None:
        """The queue's server, where workers are to do the work. Raises `QueueError`."""
        return connect(self.queue_url) if self.queue_url is not None else None


_OPTIONS: Sequence[Decorator] = (
    click.option("--runtime", type=click.Choice(["gvisor", "fork"]), required=True),
    options.runsc,
    click.option("--strict", is_flag=True, help="Stop at the first checkpoint that fails."),
    options.out,
    options.timeout,
    options.queue,
    options.lost_after,
    carrying_options,
)


def build_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``given``, the `BuildOptions`."""

    @functools.wraps(command)
    def gathered(*arguments: Any, **chosen: Any) -> Any:
        names = [field.name for field in fields(BuildOptions)]
        given = BuildOptions(**{name: chosen.pop(name) for name in names})
        if given.queue_url is not None:
            require_carrier(given.runtime, given.store)
        return command(*arguments, given=given, **chosen)

    described: Callable[..., Any] = gathered
    for option in reversed(_OPTIONS):
        described = option(described)
    return described


def require_carrier(runtime: str, store: ObjectStore | None) -> None:
    """Raises a usage error: images could not come from the workers."""
    if runtime == "gvisor" and store is None:
        raise click.UsageError(
            "what workers capture in gVisor comes back through a bucket: give --bucket "
            "s3://name/prefix, or --bucket file:///folder that all of them share"
        )


def run_build(
    terminal: Terminal, plan: Plan, metadata: Metadata, given: BuildOptions, *, with_empty: bool
) -> None:
    """Build, tell what came out. Raises `PipelineError` also when a planned checkpoint is missing."""
    job = Job(
        plan,
        _installed_here(terminal, metadata),
        given.out,
        with_empty=with_empty,
        strict=given.strict,
    )
    capturer = capturer_of(given.runtime, given.runsc, given.timeout)
    captures = _shared(given, capturer)
    report = asyncio.run(build(job, capturer, terminal.track, terminal.note, captures))
    show(terminal, report, given.out)
    if report.left_out:
        raise PipelineError(f"{len(report.left_out)} planned checkpoint(s) are missing")


def _shared(given: BuildOptions, capturer: Capturer) -> QueuedCaptures | None:
    """By workers, where a queue is given."""
    connection = given.connect()
    if connection is None:
        return None
    return QueuedCaptures(connection, capturer, given.timeout, given.lost_after, given.store)


def _installed_here(terminal: Terminal, metadata: Metadata) -> Metadata:
    with tempfile.TemporaryDirectory(
        prefix="readie-inventory-", ignore_cleanup_errors=True
    ) as home:
        try:
            inventory = Inventory.take(Interpreter(Path(home)))
            providers = inventory.providers(sorted(metadata.items))
        except MeasureError as error:
            terminal.warn(
                f"the catalogue is not filtered: listing what is installed failed: {error}"
            )
            return metadata
    return provided(metadata, providers, inventory.distributions)


def capturer_of(runtime: str, runsc: Path | None, timeout: float) -> Capturer:
    """The capturer of the wanted runtime. Raises `PipelineError` when this machine lacks it."""
    if runtime == "fork":
        return ForkCapturer(timeout, os.environ)
    found = runsc or find_runsc()
    if found is None:
        raise PipelineError(
            "there is no runsc on this machine; install one with infra/gvisor/install, or name it "
            "with --runsc, or use --runtime fork"
        )
    return GVisorCapturer(found, timeout, os.environ)


def show(terminal: Terminal, report: Report, out: Path) -> None:
    """What was captured, what was not and why, alpha planned and measured, and what comes next."""
    recorded = report.recorded
    table = Table("checkpoint", "imports", "MB", "restore ms", box=None, pad_edge=False)
    for one in recorded.catalogue.checkpoints:
        restore_s = report.captured[one.id].restore_s
        table.add_row(
            one.id,
            short(recorded.catalogue.graph.leading(one.canonical)) or "nothing",
            f"{one.size_mb:.1f}",
            "" if restore_s is None else f"{restore_s * 1000:.1f}",
        )
    terminal.out.print(table)
    for checkpoint_id, reason in report.left_out.items():
        terminal.warn(f"{checkpoint_id} is left out: {reason}")
    for checkpoint_id, captured in report.captured.items():
        for remark in captured.gate:
            terminal.warn(f"{checkpoint_id}: {remark}")
    terminal.say(alpha_line(report))
    startup = recorded.manifest.startup_s
    terminal.say(
        f"start with nothing to import: cold {startup.cold:.3f} s, restore {startup.restore:.3f} s"
    )
    terminal.say(f"generation {recorded.manifest.generation} is in {out}")
    terminal.say(f"next: readie up --generations {out}")
    terminal.say(f"to look at it: readie-pipeline report --generation {out}")


def alpha_line(report: Report) -> str:
    """Planned and measured alpha side by side, and which of them the catalogue has."""
    recorded = report.recorded
    fit = recorded.fit
    measured = f"{fit.alpha:.6f}" if fit.alpha is not None else f"none ({fit.reason})"
    if not recorded.size_matters:
        used = "" if fit.alpha is None else ", measured is used for predictions"
        verdict = f"planned is kept as the price of memory{used}"
    else:
        verdict = "planned is kept" if fit.alpha is None else "measured is used"
    return f"alpha in s/MB: planned {recorded.planned_alpha:.6f}, measured {measured}; {verdict}"
