"""What workers run: one job is one call of a function here, in a fork of the worker.

Each answers with a JSON object. Where it holds ``refused``, with the reason, this worker must not take
part in the run.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rq import get_current_job

from readie_infra.objects import ObjectStore
from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.conditions import Conditions
from readie_pipeline.capture.scratch import image_folder
from readie_pipeline.distributing.carrying import meets, send
from readie_pipeline.distributing.queues import KEPT_S
from readie_pipeline.errors import CaptureError
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.parentage import die_with_parent
from readie_pipeline.measure.probing import ProbeRequest, probe


@dataclass(frozen=True, slots=True)
class Workshop:
    """What this worker captures with. ``capturer`` makes one for a time-out in seconds.

    ``store`` is where images go; a runtime that stores none needs none.
    """

    runtime: str
    capturer: Callable[[float], Capturer]
    store: ObjectStore | None


@dataclass(frozen=True, slots=True)
class Station:
    """What this worker has. Set once, before any job: every job is a fork of it."""

    interpreter: Interpreter
    fingerprint: str
    worker: int  # pid
    workshop: Workshop | None = None


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """One capture, as it travels. ``timeout`` in seconds; ``meeting`` is empty when no image comes."""

    checkpoint_id: str
    imports: list[str]
    conditions: dict[str, Any]
    timeout: float
    meeting: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_station: list[Station] = []


def take_station(station: Station) -> None:
    _station[:] = [station]


def run_probe(request: Mapping[str, Any], fingerprint: str, timeout: float) -> Mapping[str, Any]:
    """One probe; refused when this worker has other packages than the coordinator."""
    station = _begin()
    if station.fingerprint != fingerprint:
        return _refusal(
            f"{station.interpreter.python} has other packages than where the run was started"
        )
    return probe(station.interpreter, ProbeRequest.from_json(request), timeout)


def run_capture(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """One checkpoint: its record, with the images in the bucket, or why there is none.

    Refused when what this worker captures could not be used by the run.
    """
    workshop = _begin().workshop
    if workshop is None:
        return _refusal("it was started without --runtime")
    return asyncio.run(_capture(CaptureOrder(**order), workshop))


async def _capture(order: CaptureOrder, workshop: Workshop) -> Mapping[str, Any]:
    capturer = workshop.capturer(order.timeout)
    try:
        try:
            await capturer.open()
        except CaptureError as error:
            return _refusal(str(error))
        if (obstacle := _obstacle(order, workshop, capturer)) is not None:
            return _refusal(obstacle)
        with image_folder() as folder:
            place = folder / order.checkpoint_id
            place.mkdir()
            meta = await capturer.capture(order.checkpoint_id, order.imports, place)
            if workshop.store is not None:
                send(workshop.store, place, meta.image_files)
            return {"meta": meta.to_json()}
    except CaptureError as error:
        return {"error": str(error)}
    finally:
        await capturer.close()


def _obstacle(order: CaptureOrder, workshop: Workshop, capturer: Capturer) -> str | None:
    """Why the run could not use what is captured here, told before any work."""
    obstacle = capturer.conditions().obstacle(Conditions.from_json(order.conditions))
    if obstacle is not None or not order.meeting:
        return obstacle
    if workshop.store is None:
        return "it was started without --bucket"
    if not meets(workshop.store, order.meeting):
        return f"{workshop.store.url} is not the bucket that the run was started with"
    return None


def _refusal(reason: str) -> Mapping[str, Any]:
    return {"refused": f"the worker on {socket.gethostname()} cannot take part: {reason}"}


def _begin() -> Station:
    """A job's first step: it ends with its worker, and its key does not outlive the run for long."""
    station = _station[0]
    die_with_parent(station.worker)
    job = get_current_job()
    if job is not None:  # RQ takes the expiry away when it starts a job
        job.connection.expire(job.key, int(job.timeout or 0) + KEPT_S)
    return station
