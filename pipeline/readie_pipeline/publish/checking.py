"""Reads a published generation as a worker would, and says what is wrong with it."""

from collections.abc import Sequence

from readie_infra.bucket import Bucket, BucketError, expand
from readie_infra.objects import ObjectError
from readie_pipeline.publish.stocktaking import Track
from readie_wire.publication import PackingList


def faults(bucket: Bucket, listed: PackingList, track: Track) -> Sequence[str]:
    """Fetch every file and compare it with the list; one sentence for each that is not right."""
    found = []
    by_name = {file.name: file for file in listed.files}
    for name in track(sorted(by_name), "verifying"):
        try:
            expand(bucket.store, by_name[name], len)
        except (BucketError, ObjectError) as error:
            found.append(str(error))
    return found
