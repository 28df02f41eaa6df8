"""A plan, ``checkpoints.json``: what each checkpoint is to import, and why."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from readie_pipeline.errors import PlanError

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One checkpoint to be.

    ``imports`` is what the process is told to import, in order; ``items`` all measured items it
    then holds. ``requests`` of the corpus are served best by it, which saves ``seconds_saved`` of
    imports over a cold start, sizes priced in; ``size_mb`` is the memory of its items.
    """

    imports: Sequence[str]
    items: Sequence[str] = ()
    requests: int = 0
    seconds_saved: float = 0.0
    size_mb: float = 0.0

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            imports=tuple(value["imports"]),
            items=tuple(value.get("items", ())),
            requests=int(value.get("requests", 0)),
            seconds_saved=float(value.get("seconds_saved", 0.0)),
            size_mb=float(value.get("size_mb", 0.0)),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """``alpha`` is the weight, in seconds per MB, that the planner worked with."""

    planner: str
    flavor: str
    alpha: float
    entries: Sequence[PlanEntry]


def load_plan(data: bytes) -> Plan:
    """Read the bytes of ``checkpoints.json``. Raises `PlanError`."""
    try:
        value = json.loads(data)
        if value["version"] != PLAN_VERSION:
            raise PlanError(f"the plan has version {value['version']!r}, not {PLAN_VERSION}")
        return Plan(
            planner=str(value["planner"]),
            flavor=str(value["flavor"]),
            alpha=float(value["alpha"]),
            entries=tuple(PlanEntry.from_json(entry) for entry in value["checkpoints"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"not a plan: {error!r}") from error


def dump_plan(plan: Plan) -> bytes:
    value = {
        "version": PLAN_VERSION,
        "planner": plan.planner,
        "flavor": plan.flavor,
        "alpha": plan.alpha,
        "checkpoints": [asdict(entry) for entry in plan.entries],
    }
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"
