"""``readie-pipeline worker``: take jobs of runs that were started elsewhere."""

import functools
from pathlib import Path

import click
from redis.exceptions import RedisError

from readie_infra.objects import ObjectStore
from readie_pipeline.commands import options
from readie_pipeline.commands.bucket_options import carrying_options
from readie_pipeline.commands.building import capturer_of, require_carrier
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.console import Terminal
from readie_pipeline.distributing.connecting import connect
from readie_pipeline.distributing.jobs import Workshop
from readie_pipeline.distributing.working import work
from readie_pipeline.errors import QueueError


@click.command()
@click.option("--queue", "queue_url", required=True, help="redis://host:port/db of the runs.")
@click.option("--burst", is_flag=True, help="End when the queue is empty.")
@options.python
@click.option(
    "--runtime",
    type=click.Choice(["gvisor", "fork"]),
    help="Also capture, with this runtime.  [default: only measure]",
)
@options.runsc
@carrying_options
@click.pass_obj
def worker(
    terminal: Terminal,
    *,
    queue_url: str,
    burst: bool,
    python: Path,
    runtime: str | None,
    runsc: Path | None,
    store: ObjectStore | None,
) -> None:
    """Work for runs that were started with --queue: measure this machine's packages, capture.

    What is captured fits only a run on the same root filesystem (interpreter, packages, gVisor);
    others are refused before any work.
    """
    workshop = None
    if runtime is not None:
        require_carrier(runtime, store)
        capturer_of(runtime, runsc, timeout=1.0)  # says now what this machine lacks
        workshop = Workshop(runtime, functools.partial(capturer_of, runtime, runsc), store)
    connection = connect(queue_url)
    try:
        work(connection, python, offline_wrapper(terminal), workshop, burst=burst)
    except RedisError as error:
        raise QueueError(f"the queue cannot be reached: {error}") from error
