"""Objects by key in a bucket: S3 and what speaks like it, or a directory with the same behaviour.

Calls block: event loops run them in a thread. Every store is safe to use from several threads.
"""

from readie_infra.objects.errors import (
    ObjectConflictError,
    ObjectError,
    ObjectKeyError,
    ObjectMissingError,
    ObjectStoreUnavailableError,
    UnfitStoreError,
)
from readie_infra.objects.opening import S3Options, open_objects
from readie_infra.objects.probing import probe
from readie_infra.objects.store import Document, Head, Listed, ObjectStore

__all__ = [
    "Document",
    "Head",
    "Listed",
    "ObjectConflictError",
    "ObjectError",
    "ObjectKeyError",
    "ObjectMissingError",
    "ObjectStore",
    "ObjectStoreUnavailableError",
    "S3Options",
    "UnfitStoreError",
    "open_objects",
    "probe",
]
