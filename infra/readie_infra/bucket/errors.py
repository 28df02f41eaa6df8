"""Why something in a bucket is not used.

InfraError
└── BucketError
    ├── NotPublishedError    nothing is published there
    ├── UntrustedError       no pinned key vouches for it, or it is not what a pointer named
    └── CorruptObjectError   an object's bytes are not those that the packing list names
"""

from readie_infra.errors import InfraError


class BucketError(InfraError):
    """What a bucket holds cannot be used; the message says what, and why."""


class NotPublishedError(BucketError):
    """There is no such pointer or generation."""


class UntrustedError(BucketError):
    """A document is not proven to come from a publisher that is trusted here."""


class CorruptObjectError(BucketError):
    """The bytes that arrived have another length or hash than was published."""
