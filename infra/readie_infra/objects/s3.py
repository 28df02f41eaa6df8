"""S3, and servers that speak like it, by boto3. The one file that knows boto3."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import boto3
import botocore.session
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from readie_infra.objects.errors import (
    ObjectConflictError,
    ObjectMissingError,
    ObjectStoreUnavailableError,
)
from readie_infra.objects.store import (
    CHUNK_BYTES,
    DOCUMENT_LIMIT_BYTES,
    Document,
    Head,
    Listed,
    check_key,
)

Addressing = Literal["auto", "path", "virtual"]

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30  # between two pieces of an answer, not for the whole of it
ATTEMPTS = 5  # botocore's own, with growing pauses: some ten seconds in all
PART_BYTES = 32 << 20  # a larger file goes up in parts of this size: at most 10,000 are allowed
PARTS_TOGETHER = 4
# 409 is what AWS answers when two conditional puts meet.
CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
MISSING = frozenset({"NoSuchKey", "NotFound", "404"})
NOT_MODIFIED = frozenset({"NotModified", "304"})
_CREDENTIALS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
_RIGHTS = (
    "workers and gateways have to get objects, publishers also to put, list and delete them; without "
    "the right to list, what is not there looks forbidden"
)
REMEDIES = {
    "NoSuchBucket": "make the bucket, or correct its name",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
}


class S3Objects:
    """Objects of one bucket whose keys begin with ``prefix`` (empty, or ends with a slash)."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")

    def get(self, key: str) -> Document:
        with self._translated(key):
            return self._read(key, self._client.get_object(**self._named(key)))

    def get_changed(self, key: str, etag: str) -> Document | None:
        with self._translated(key):
            try:
                answer = self._client.get_object(**self._named(key), IfNoneMatch=etag)
            except ClientError as error:
                if _code(error) in NOT_MODIFIED:
                    return None
                raise
            return self._read(key, answer)

    @contextmanager
    def stream(self, key: str, offset: int = 0) -> Iterator[Iterator[bytes]]:
        wanted = {"Range": f"bytes={offset}-"} if offset else {}
        with self._translated(key):
            body = self._client.get_object(**self._named(key), **wanted)["Body"]
        with closing(body):
            yield self._chunks(key, body)

    def head(self, key: str) -> Head | None:
        try:
            with self._translated(key):
                found = self._client.head_object(**self._named(key))
                return Head(found["ContentLength"], found["LastModified"].timestamp())
        except ObjectMissingError:
            return None

    def put(self, key: str, source: bytes | Path) -> None:
        with self._translated(key):
            if isinstance(source, bytes):
                self._client.put_object(**self._named(key), Body=source)
                return
            parts = TransferConfig(
                multipart_threshold=PART_BYTES,
                multipart_chunksize=PART_BYTES,
                max_concurrency=PARTS_TOGETHER,
            )
            named = self._named(key)
            self._client.upload_file(str(source), named["Bucket"], named["Key"], Config=parts)

    def put_if_absent(self, key: str, data: bytes) -> None:
        with self._translated(key):
            self._client.put_object(**self._named(key), Body=data, IfNoneMatch="*")

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        try:
            with self._translated(key):
                self._client.put_object(**self._named(key), Body=data, IfMatch=etag)
        except ObjectMissingError as error:
            raise ObjectConflictError(key, "it is gone by now") from error

    def list(self, prefix: str) -> Iterator[Listed]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._translated(prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for found in page.get("Contents", ()):
                    key = found["Key"].removeprefix(self._prefix)
                    yield Listed(key, found["Size"], found["LastModified"].timestamp())

    def delete(self, key: str) -> None:
        with self._translated(key):
            self._client.delete_object(**self._named(key))

    def drop_unfinished(self, prefix: str, before: float) -> int:
        pages = self._client.get_paginator("list_multipart_uploads")
        dropped = 0
        with self._translated(prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for found in page.get("Uploads", ()):
                    if found["Initiated"].timestamp() < before:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=found["Key"], UploadId=found["UploadId"]
                        )
                        dropped += 1
        return dropped

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _read(self, key: str, answer: Any) -> Document:
        with answer["Body"] as body:
            data = body.read(DOCUMENT_LIMIT_BYTES + 1)
        if len(data) > DOCUMENT_LIMIT_BYTES:
            raise ObjectStoreUnavailableError(
                key, f"over {DOCUMENT_LIMIT_BYTES} bytes, the limit of a document"
            )
        return Document(data, answer["ETag"])

    def _chunks(self, key: str, body: Any) -> Iterator[bytes]:
        with self._translated(key):
            yield from body.iter_chunks(CHUNK_BYTES)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = _code(error)
            if code in MISSING:
                raise ObjectMissingError(key, "there is none") from error
            if code in CONFLICTS:
                raise ObjectConflictError(key, "somebody else was first") from error
            remedy = REMEDIES.get(code, "")
            detail = f"{error} ({self.url}){remedy and '; '}{remedy}"
            raise ObjectStoreUnavailableError(key, detail) from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise ObjectStoreUnavailableError(key, f"{error} ({self.url})") from error
        except (KeyError, ValueError) as error:  # of boto3, which believes what servers say
            detail = f"{self.url} gives an answer that cannot be read: {error!r}"
            raise ObjectStoreUnavailableError(key, detail) from error


def make_client(
    *,
    endpoint_url: str | None,
    addressing: Addressing,
    ca_bundle: Path | None,
    profile: str | None,
    region: str | None,
) -> Any:
    """A client of boto3; what is not given comes from its environment variables and files.

    ``auto`` is what the configuration files say. Where they say nothing, the bucket's name goes into
    the path unless the endpoint is AWS's own: other servers rarely have a host name for each bucket.
    Raises `BotoCoreError`.
    """
    core = botocore.session.Session(profile=profile)
    session = boto3.Session(botocore_session=core, region_name=region)

    def make(style: str) -> Any:
        return session.client(
            "s3",
            endpoint_url=endpoint_url,
            verify=str(ca_bundle) if ca_bundle else None,
            region_name=session.region_name or "us-east-1",
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                s3={"addressing_style": style},
                # Servers differ in which checksums they send, and for what; ours decide anyway.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    given = core.get_scoped_config().get("s3", {})
    if addressing == "auto" and isinstance(given, dict):
        addressing = given.get("addressing_style", "auto")
    client = make(addressing)
    if addressing == "auto" and not _is_aws(client.meta.endpoint_url):
        client.close()
        client = make("path")
    return client


def _is_aws(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
