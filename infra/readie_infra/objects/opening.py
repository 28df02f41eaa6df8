"""From the URL of a bucket to an open store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from readie_infra.errors import SettingsError
from readie_infra.objects.directory import DirectoryObjects
from readie_infra.objects.errors import ObjectKeyError
from readie_infra.objects.store import ObjectStore, check_key


@dataclass(frozen=True, slots=True)
class S3Options:
    """Beyond what the S3 client reads from its own environment variables and files.

    ``addressing``: where the bucket's name goes, the ``path`` or the host name (``virtual``).
    ``ca_bundle``: a file of certificates to trust instead of the system's.
    """

    endpoint_url: str | None = None
    addressing: Literal["auto", "path", "virtual"] = "auto"
    ca_bundle: Path | None = None
    profile: str | None = None
    region: str | None = None


def open_objects(url: str, options: S3Options | None = None) -> ObjectStore:
    """``s3://bucket/prefix`` or ``file:///folder``. Connects to nothing. Raises `SettingsError`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return DirectoryObjects(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment):
        return _open_s3(url, parts.netloc, parts.path.strip("/"), options or S3Options())
    raise SettingsError(f"bucket {url!r} is not supported: give s3://name/prefix or file:///folder")


def _open_s3(url: str, bucket: str, prefix: str, options: S3Options) -> ObjectStore:
    # Half a second and 30 MB to import: only for those who have such a bucket.
    from botocore.exceptions import BotoCoreError

    from readie_infra.objects.s3 import S3Objects, make_client

    try:
        client = make_client(
            endpoint_url=options.endpoint_url,
            addressing=options.addressing,
            ca_bundle=options.ca_bundle,
            profile=options.profile,
            region=options.region,
        )
        return S3Objects(client, bucket, f"{check_key(prefix)}/" if prefix else "")
    except (BotoCoreError, ValueError, ObjectKeyError) as error:
        raise SettingsError(f"bucket {url!r} cannot be opened: {error}") from error
