"""``readie-pipeline worker``: take jobs of runs that were started elsewhere."""

from pathlib import Path

import click
from redis.exceptions import RedisError

from readie_pipeline.commands import options
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.console import Terminal
from readie_pipeline.distributing.connecting import connect
from readie_pipeline.distributing.jobs import work
from readie_pipeline.errors import QueueError


@click.command()
@click.option("--queue", "queue_url", required=True, help="redis://host:port/db of the runs.")
@click.option("--burst", is_flag=True, help="End when the queue is empty.")
@options.python
@click.pass_obj
def worker(terminal: Terminal, *, queue_url: str, burst: bool, python: Path) -> None:
    """Measure for a run that `analyze --queue` has started, on this machine's packages."""
    connection = connect(queue_url)
    try:
        work(connection, python, offline_wrapper(terminal), burst=burst)
    except RedisError as error:
        raise QueueError(f"the queue cannot be reached: {error}") from error
