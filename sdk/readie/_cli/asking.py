"""The service as a command asks it: errors become the command's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from readie._client import default_client
from readie._errors import ReadieError
from readie._service import Service


@contextmanager
def service() -> Iterator[Service]:
    """The service that the settings name. Its errors end the command with their message."""
    try:
        yield default_client()._service()
    except ReadieError as error:
        raise click.ClickException(str(error)) from error
