"""Published generations in a bucket, as those who read them see it: nothing unproven gets through."""

from readie_infra.bucket.errors import (
    BucketError,
    CorruptObjectError,
    NotPublishedError,
    UntrustedError,
)
from readie_infra.bucket.fetching import compress, expand, fetch, save
from readie_infra.bucket.reading import Bucket, FoundPointer
from readie_infra.bucket.signing import SigningKey, Trust

__all__ = [
    "Bucket",
    "BucketError",
    "CorruptObjectError",
    "FoundPointer",
    "NotPublishedError",
    "SigningKey",
    "Trust",
    "UntrustedError",
    "compress",
    "expand",
    "fetch",
    "save",
]
