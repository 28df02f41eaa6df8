"""From the URL of a blob store to an open one."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from readie_infra.blobs.api import BlobStore
from readie_infra.blobs.bucket import BucketBlobs
from readie_infra.blobs.directory import DirectoryBlobs
from readie_infra.errors import SettingsError
from readie_infra.objects import open_objects


def open_blobs(url: str) -> BlobStore:
    """``file:///folder`` opens a `DirectoryBlobs` there, ``s3://bucket/prefix`` a `BucketBlobs`.

    Other schemes raise `SettingsError`.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return BucketBlobs(open_objects(url))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise SettingsError(
            f"blob_url {url!r} is not supported: give file:///absolute/folder or s3://bucket/prefix"
        )
    return DirectoryBlobs(Path(unquote(parts.path)))
