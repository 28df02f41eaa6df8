"""Payloads and results too large for Redis: bytes under keys such as ``blobs/{call}/payload``."""

from readie_infra.blobs.api import BlobStore, StillKnown, payload_key, result_key
from readie_infra.blobs.bucket import BucketBlobs
from readie_infra.blobs.directory import DirectoryBlobs
from readie_infra.blobs.opening import open_blobs

__all__ = [
    "BlobStore",
    "BucketBlobs",
    "DirectoryBlobs",
    "StillKnown",
    "open_blobs",
    "payload_key",
    "result_key",
]
