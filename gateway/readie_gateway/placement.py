"""Which flavor runs a call, and which checkpoint it should start from: eligible, then priced."""

from collections.abc import Sequence
from dataclasses import dataclass

from readie_gateway.errors import (
    IncompatiblePythonError,
    InvalidRequestError,
    NoWorkerError,
    UnknownCheckpointError,
)
from readie_gateway.fleet import Fleet, PricedGeneration
from readie_gateway.loading import LoadedCatalogue
from readie_gateway.options import CallOptions
from readie_gateway.sizes import describe_size
from readie_wire.eligibility import CallFacts, eligible
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.pricing import Quote
from readie_wire.records import Choice, WorkerRecord
from readie_wire.versions import python_minor

NAMES_SHOWN = 20  # checkpoints listed in the refusal of an unknown pin


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call goes. ``needs`` are catalogue items, without what they depend on."""

    flavor: str
    choice: Choice
    needs: Sequence[str] = ()


def place(
    header: CallHeader,
    options: CallOptions,
    fleet: Fleet,
    catalogues: Sequence[LoadedCatalogue] = (),
) -> Placement:
    """Place a call on the fleet as it is now.

    Raises `NoWorkerError` for a call that no worker there is could take, `IncompatiblePythonError`
    and `UnknownCheckpointError`. Without any worker the call is let through: one may come.
    """
    flavor = _flavor(options, fleet)
    workers = _takers(options, fleet, flavor)
    if workers:
        _require_a_worker_that_fits(workers, options, flavor)
    if header.kind is CallKind.PICKLE:
        _require_python(header.python, workers, catalogues, flavor)
    generations = fleet.priced(flavor)
    if options.checkpoint_id is not None:
        return _pinned(options, header, fleet, flavor, catalogues)
    if options.disable_optimized_execution:
        reason = "optimized execution is disabled for this call"
        if not generations:
            return Placement(flavor, Choice(reason=reason))
        needs = generations[0].items_of(tuple(header.imports))
        cold = generations[0].priced.quote_of(needs, None)
        return _placed(generations[0], needs, cold, flavor, reason)
    if not generations:
        return Placement(
            flavor, Choice(reason="no live worker holds a generation with a catalogue")
        )
    return _cheapest(generations[0], header, options, flavor)


def place_session(options: CallOptions, fleet: Fleet) -> str:
    """The flavor of a session's worker. Raises `NoWorkerError` for one that no worker could hold."""
    flavor = _flavor(options, fleet)
    if workers := _takers(options, fleet, flavor):
        _require_a_worker_that_fits(workers, options, flavor)
    return flavor


def call_facts(header: CallHeader, options: CallOptions) -> CallFacts:
    """What a call demands of a checkpoint."""
    return CallFacts(
        pin=options.checkpoint_id,
        environment=frozenset(options.env),
        memory=options.memory,
        own_modules=frozenset(header.modules),
    )


def _flavor(options: CallOptions, fleet: Fleet) -> str:
    if options.needs_gpu:
        return "gpu"
    if options.flavor is not None:
        return options.flavor
    # A CPU call prefers cpu workers; where there are only gpu workers they serve it.
    return "gpu" if fleet.of_flavor("gpu") and not fleet.of_flavor("cpu") else "cpu"


def _takers(options: CallOptions, fleet: Fleet, flavor: str) -> Sequence[WorkerRecord]:
    """Who may take the call: gpu workers too, where it is a cpu call that names no flavor."""
    spills = flavor == "cpu" and options.flavor is None
    return [*fleet.of_flavor(flavor), *(fleet.of_flavor("gpu") if spills else ())]


def _require_a_worker_that_fits(
    workers: Sequence[WorkerRecord], options: CallOptions, flavor: str
) -> None:
    able = [worker for worker in workers if not worker.error]
    if not able:
        reasons = "; ".join(sorted({worker.error for worker in workers}))
        raise NoWorkerError(f"no {flavor} worker can run calls: {reasons}")
    largest = max(worker.memory_total for worker in able)
    if options.memory > largest:
        raise NoWorkerError(
            f"the call asks for {describe_size(options.memory)} of memory; "
            f"the largest {flavor} worker has {describe_size(largest)}",
            field="options.memory",
            limit=largest,
        )
    budget = max(options.gpu_memory or 0, options.max_gpu_memory or 0)
    largest_gpu = max(worker.gpu_total for worker in able)
    if budget > largest_gpu:
        raise NoWorkerError(
            f"the call asks for {describe_size(budget)} of GPU memory; "
            f"the largest gpu worker offers {describe_size(largest_gpu)}",
            field="options.gpu_memory",
            limit=largest_gpu,
        )


def _require_python(
    caller: str,
    workers: Sequence[WorkerRecord],
    catalogues: Sequence[LoadedCatalogue],
    flavor: str,
) -> None:
    if not caller:
        raise InvalidRequestError(
            "python: a pickled call must say its Python version", field="python"
        )
    offered = {python_minor(worker.python) for worker in workers if worker.python} or {
        python_minor(one.python) for one in catalogues if one.python and one.flavor == flavor
    }
    if offered and python_minor(caller) not in offered:
        names = sorted(offered, key=_version_key)
        raise IncompatiblePythonError(
            f"you run Python {python_minor(caller)}; the workers run {', '.join(names)}. "
            "A pickled function works only between equal minor versions: run that Python, "
            "or send the function as source",
            field="python",
            limit=names,
        )


def _cheapest(
    generation: PricedGeneration, header: CallHeader, options: CallOptions, flavor: str
) -> Placement:
    needs = generation.items_of(tuple(header.imports))
    facts = call_facts(header, options)
    refusals: dict[str, str] = {}

    def refusal(checkpoint_id: str) -> str | None:
        checkpoint = generation.checkpoints.get(checkpoint_id)
        reason = "no worker holds it" if checkpoint is None else eligible(facts, checkpoint)
        if reason is not None:
            refusals[checkpoint_id] = reason
        return reason

    quote = generation.priced.choose(needs, refusal)
    if quote.checkpoint is None:
        reason = "no checkpoint is cheaper than a cold start"
    else:
        reason = "the cheapest of those that may serve the call"
    if refusals:
        shown, why = next(reversed(refusals.items()))
        reason += f"; {shown} may not: {why}"
    return _placed(generation, needs, quote, flavor, reason)


def _placed(
    generation: PricedGeneration,
    needs: Sequence[str],
    quote: Quote,
    flavor: str,
    reason: str,
    *,
    pinned: bool = False,
) -> Placement:
    cold = generation.priced.quote_of(needs, None)
    choice = Choice(
        generation=generation.generation,
        checkpoint=quote.checkpoint,
        pinned=pinned,
        predicted_s=quote.total_s,
        cold_s=cold.total_s,
        reason=reason,
        predicted_start_s=generation.predict(quote).start_s,
        cold_start_s=generation.predict(cold).start_s,
    )
    return Placement(flavor, choice, needs)


def _pinned(
    options: CallOptions,
    header: CallHeader,
    fleet: Fleet,
    flavor: str,
    catalogues: Sequence[LoadedCatalogue],
) -> Placement:
    pin = options.checkpoint_id or ""
    wanted, _, checkpoint_id = pin.rpartition("/")
    for generation in fleet.priced(flavor):
        if wanted in ("", generation.generation) and checkpoint_id in generation.checkpoints:
            return _priced_pin(generation, checkpoint_id, options, header, flavor)
        if not wanted:
            break  # a bare id means the current generation, and no other
    if not fleet.of_flavor(flavor) and any(
        checkpoint_id in (one.id for one in catalogue.priced.catalogue.checkpoints)
        for catalogue in catalogues
        if catalogue.flavor == flavor and wanted in ("", catalogue.generation)
    ):
        raise NoWorkerError(
            f"{pin} is in a catalogue, but no {flavor} worker that could restore it is alive",
            field="options.checkpoint_id",
        )
    known = [
        f"{generation.generation}/{checkpoint}"
        for generation in fleet.priced(flavor)
        for checkpoint in generation.checkpoints
    ]
    shown = ", ".join(known[:NAMES_SHOWN]) or "none"
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    raise UnknownCheckpointError(
        f"no live {flavor} worker holds the checkpoint {pin!r}; there are: {shown}{more}",
        field="options.checkpoint_id",
        limit=known[:NAMES_SHOWN],
    )


def _priced_pin(
    generation: PricedGeneration,
    checkpoint_id: str,
    options: CallOptions,
    header: CallHeader,
    flavor: str,
) -> Placement:
    reason = eligible(call_facts(header, options), generation.checkpoints[checkpoint_id])
    if reason is not None:
        raise InvalidRequestError(
            f"{options.checkpoint_id} cannot serve this call: {reason}",
            field="options.checkpoint_id",
        )
    needs = generation.items_of(tuple(header.imports))
    quote = generation.priced.quote_of(needs, checkpoint_id)
    return _placed(generation, needs, quote, flavor, "pinned by the caller", pinned=True)


def _version_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
