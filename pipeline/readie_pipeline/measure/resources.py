"""Which of the datasets, models and tokenizers that somebody names can be loaded here, and how."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.loaders import LIBRARIES, call_for, sklearn_call
from readie_pipeline.measure.locating import Places, parted
from readie_pipeline.measure.probing import Call


@dataclass(frozen=True, slots=True)
class Resources:
    """Items such as ``model:gpt2``.

    ``calls`` load those that are here; ``failures`` tells why others that are here cannot be
    loaded; ``absent`` are not on this machine.
    """

    calls: Mapping[str, Call]
    failures: Mapping[str, str]
    absent: frozenset[str]


def find_resources(items: Iterable[str], places: Places, inventory: Inventory) -> Resources:
    """Look for each item; nothing is fetched, and nothing loaded yet."""
    installed = inventory.existing(LIBRARIES)
    calls: dict[str, Call] = {}
    failures: dict[str, str] = {}
    absent = set()
    for item in sorted(items):
        try:
            call = _call_for(item, places, installed)
        except MeasureError as error:
            failures[item] = str(error)
        else:
            if call is None:
                absent.add(item)
            else:
                calls[item] = call
    return Resources(calls, failures, frozenset(absent))


def _call_for(item: str, places: Places, installed: Container[str]) -> Call | None:
    kind, name = parted(item)
    path = places.find(item)
    if path is None:
        return sklearn_call(name, places.sklearn, installed)
    if not path.exists():
        raise MeasureError(f"{path} is not there")
    return call_for(kind, path, installed)
