"""``--notify``: after a pointer was changed, tell the fleet to look at it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from readie_pipeline.commands.corpus_services import gateway_token
from readie_pipeline.console import Terminal
from readie_pipeline.errors import NotifyError
from readie_pipeline.publish.notifying import notify


def notify_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command that has changed a pointer be followed by a nudge.

    What it has done stands when the nudge fails: workers look by themselves, and a warning says so.
    """

    @functools.wraps(command)
    def notifying(
        terminal: Terminal,
        *arguments: Any,
        url: str | None,
        token_file: Path | None,
        **options: Any,
    ) -> Any:
        token = gateway_token(url, token_file) if url is not None else ""
        done = command(terminal, *arguments, **options)
        if url is not None:
            _tell(terminal, url, token)
        return done

    for option in (
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Token of the gateway.  [default: READIE_AUTH_TOKEN, or that of `readie up`]",
        ),
        click.option(
            "--notify", "url", metavar="URL", help="A gateway whose workers are to look at once."
        ),
    ):
        notifying = option(notifying)
    return notifying


def _tell(terminal: Terminal, url: str, token: str) -> None:
    try:
        workers = notify(url, token)
    except NotifyError as error:
        terminal.warn(f"{error}; workers will look by themselves, within their READIE_BUCKET_POLL")
    else:
        told = "1 worker was" if workers == 1 else f"{workers} workers were"
        terminal.say(f"{told} told to look at it")
