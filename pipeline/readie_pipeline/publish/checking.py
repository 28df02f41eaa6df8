"""Reads a published generation as a worker would, and says what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from readie_infra.bucket import Bucket, CorruptObjectError, expand
from readie_infra.objects import ObjectError
from readie_pipeline.publish.stocktaking import Track
from readie_wire.publication import PackingList


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one object. ``damaged``: it is there, and its bytes are others."""

    key: str
    reason: str
    damaged: bool


def faults(bucket: Bucket, listed: PackingList, track: Track) -> Sequence[Fault]:
    """Fetch every file and compare it with the list; one for each that is not right."""
    found = []
    by_name = {file.name: file for file in listed.files}
    for name in track(sorted(by_name), "verifying"):
        file = by_name[name]
        try:
            expand(bucket.store, file, len)
        except CorruptObjectError as error:
            found.append(Fault(file.key, str(error), damaged=True))
        except ObjectError as error:
            found.append(Fault(file.key, str(error), damaged=False))
    return found
