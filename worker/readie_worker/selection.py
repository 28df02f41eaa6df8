"""Which checkpoint a call starts from on this worker.

The gateway's choice counts where this worker holds the generation that was priced. Where it does
not (a swap is under way, a call of another flavor, a worker that had not registered yet), the same
rule is asked again against the worker's own catalogue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from readie_wire.eligibility import CallFacts, eligible
from readie_wire.outcome import ErrorInfo, ErrorKind
from readie_wire.pricing import predict
from readie_wire.records import CallRecord, Choice
from readie_worker.errors import CallRefusedError
from readie_worker.generations import Generation
from readie_worker.holdings import Holdings
from readie_worker.options import CallOptions
from readie_worker.sandbox.api import Checkpoint

# What a call must gain by a sandbox that was made for others: the next of those waits longer for its
# own. A fork costs less than this, so there nothing stands in for anything.
STAND_IN_SAVES_S = 0.05


@dataclass(frozen=True, slots=True)
class Start:
    """How to start. ``checkpoint`` None is a cold start.

    ``predicted_s`` is the price in seconds, ``predicted_start_s`` the time that the start is expected to
    take. ``overruled`` says why the gateway's choice was not taken, empty when it was.
    """

    checkpoint: Checkpoint | None
    predicted_s: float | None = None
    overruled: str = ""
    predicted_start_s: float | None = None

    @classmethod
    def chosen(cls, checkpoint: Checkpoint | None, choice: Choice) -> Self:
        """As the gateway chose."""
        return cls(checkpoint, choice.predicted_s, "", choice.predicted_start_s)


class Selection:
    """Prices by the same rule as the gateway, among what can be restored here and now."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings

    def plan(self, record: CallRecord, options: CallOptions) -> Start:
        """Raises `CallRefusedError` for a pin that cannot be honoured: never a silent cold start."""
        choice = record.choice
        if options.disable_optimized_execution:
            return Start(None, choice.cold_s, "", choice.cold_start_s)
        if choice.key is not None:
            checkpoint = self._holdings.get(choice.key)
            if checkpoint is not None:
                return Start.chosen(checkpoint, choice)
        if choice.pinned:
            raise _pin_refused(record, self._holdings)
        generation = self._holdings.generation
        if generation is None:
            overruled = f"{choice.key}: {self._holdings.why_not(choice.key)}" if choice.key else ""
            return Start(None, choice.cold_s, overruled, choice.cold_start_s)
        if choice.generation == generation.id and choice.checkpoint is None:
            return Start.chosen(None, choice)
        return self._price_again(record, options, generation)

    def stand_in(
        self, record: CallRecord, options: CallOptions, planned: Start, ready: Sequence[str]
    ) -> Start | None:
        """The best of the checkpoints that a sandbox is ``ready`` of, where its call starts sooner.

        It has started already, so all it costs is the imports that it lacks. Nothing stands in for a
        checkpoint that was asked for by name, or for a cold start that was.
        """
        generation, start_s = self._holdings.generation, planned.predicted_start_s
        asked_for = record.choice.pinned or options.disable_optimized_execution
        if generation is None or start_s is None or asked_for:
            return None
        facts, needs = _facts(record, options), {*record.imports, *record.needs}
        factor = generation.manifest.startup_s.import_factor
        chosen = "a cold start" if planned.checkpoint is None else planned.checkpoint.key
        best: Start | None = None
        limit_s = start_s - STAND_IN_SAVES_S
        for key in ready:
            checkpoint, name = self._holdings.get(key), key.rpartition("/")[2]
            if checkpoint is None or eligible(facts, generation.facts[name]) is not None:
                continue
            quote = generation.priced.quote_of(needs, name)
            if (imports_s := quote.missing_s * factor) <= limit_s:
                limit_s = imports_s
                overruled = f"{chosen}: a sandbox of {name} was ready"
                best = Start(checkpoint, quote.total_s, overruled, imports_s)
        return best

    def _price_again(
        self, record: CallRecord, options: CallOptions, generation: Generation
    ) -> Start:
        facts = _facts(record, options)

        def reason_against(checkpoint_id: str) -> str | None:
            key = generation.key(checkpoint_id)
            if self._holdings.get(key) is None:
                return self._holdings.why_not(key)
            return eligible(facts, generation.facts[checkpoint_id])

        quote = generation.priced.choose({*record.imports, *record.needs}, reason_against)
        key = record.choice.key
        overruled = f"{key}: {self._holdings.why_not(key)}" if key else ""
        checkpoint = None
        if quote.checkpoint is not None:
            checkpoint = self._holdings.get(generation.key(quote.checkpoint))
        start_s = predict(quote, generation.manifest.startup_s, generation.manifest.runtime).start_s
        return Start(checkpoint, quote.total_s, overruled, start_s)


def _facts(record: CallRecord, options: CallOptions) -> CallFacts:
    return CallFacts(
        environment=frozenset(options.environment),
        memory=options.memory,
        own_modules=frozenset(record.modules),
    )


def _pin_refused(record: CallRecord, holdings: Holdings) -> CallRefusedError:
    pin = record.options.get("checkpoint_id") or record.choice.key
    why = holdings.why_not(record.choice.key) if record.choice.key else record.choice.reason
    return CallRefusedError(
        ErrorInfo(
            kind=ErrorKind.INVALID_REQUEST,
            type="readie.InvalidRequestError",
            message=f"checkpoint_id {pin!r} cannot be honoured: {why or 'it is not known'}",
            details={"field": "options.checkpoint_id"},
        )
    )
