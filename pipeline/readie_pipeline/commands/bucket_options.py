"""Which bucket is meant, how it is reached, and whom one believes."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from readie_infra.bucket import Trust
from readie_infra.objects import ObjectStore, S3Options, open_objects
from readie_pipeline.commands.options import Decorator

_HELP = "s3://name/prefix, or file:///folder."
_REQUIRED: Decorator = click.option("--bucket", required=True, envvar="READIE_BUCKET", help=_HELP)
_OPTIONAL: Decorator = click.option(
    "--bucket",
    envvar="READIE_BUCKET",
    help=f"Through which images come from workers to the run: {_HELP}",
)
_OPTIONS: Sequence[Decorator] = (
    click.option("--endpoint-url", help="Of an S3 server that is not AWS's."),
    click.option(
        "--addressing",
        type=click.Choice(["auto", "path", "virtual"]),
        default="auto",
        show_default=True,
        help="Whether a bucket's name goes into the path or the host name.",
    ),
    click.option(
        "--ca-bundle",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Certificates to trust instead of the system's.",
    ),
    click.option("--profile", help="Of the AWS configuration files."),
    click.option("--region", help="Of the bucket."),
)


def bucket_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``store``, opened; credentials are found as boto3 finds them."""
    return _REQUIRED(_opening(command))


def carrying_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same where a bucket may be missing: ``store`` is None then."""
    return _OPTIONAL(_opening(command))


def _opening(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def opened(
        *arguments: Any,
        bucket: str | None,
        endpoint_url: str | None,
        addressing: Any,
        ca_bundle: Path | None,
        profile: str | None,
        region: str | None,
        **options: Any,
    ) -> Any:
        given = S3Options(endpoint_url, addressing, ca_bundle, profile, region)
        store: ObjectStore | None = open_objects(bucket, given) if bucket else None
        return command(*arguments, store=store, **options)

    described: Callable[..., Any] = opened
    for option in reversed(_OPTIONS):
        described = option(described)
    return described


def trust_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``trust``. Without keys, signatures are not looked at."""

    @functools.wraps(command)
    def trusting(*arguments: Any, public_keys: Sequence[str], **options: Any) -> Any:
        given = [key for text in public_keys for key in text.split(",")]
        return command(*arguments, trust=Trust.of(given, unsigned=not given), **options)

    return click.option(
        "--public-key",
        "public_keys",
        multiple=True,
        envvar="READIE_BUCKET_KEYS",
        help="A key that generations must be signed by; once for each.",
    )(trusting)
