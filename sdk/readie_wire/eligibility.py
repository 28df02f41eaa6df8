"""May this checkpoint serve this call at all? Asked before its price, and of every sandbox ready ahead.

A checkpoint is a process that has already made choices: which version of a package is loaded, and
what some environment variables were when it was. A call that needs another choice must not get it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from readie_wire.catalogue import Catalogue, canonical_distribution

MIB = 1024 * 1024
# What the executor and a function's first steps take on top of what the checkpoint holds.
MEMORY_MARGIN = 32 * MIB


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a call demands of the process it starts in.

    ``pin`` is ``checkpoint_3`` or ``generation/checkpoint_3``. ``packages`` maps distributions the
    call asks for to a test of an installed version (this package cannot parse specifiers).
    ``environment`` are names of variables the call sets; ``memory`` in bytes, 0 when not limited;
    ``own_modules`` are modules that travel with the call.
    """

    pin: str | None = None
    packages: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    environment: frozenset[str] = frozenset()
    memory: int = 0
    own_modules: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What a checkpoint's process holds.

    ``distributions`` maps the loaded ones to versions (empty when not known); ``modules`` are the
    top-level names that are loaded; ``import_environment`` are the variables that were read while
    it imported.
    """

    id: str
    generation: str = ""
    distributions: Mapping[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    import_environment: frozenset[str] = frozenset()
    size_mb: float = 0.0


def eligible(call: CallFacts, checkpoint: CheckpointFacts) -> str | None:
    """Why ``checkpoint`` may not serve ``call``, or ``None`` when it may."""
    if call.pin is not None and call.pin not in (checkpoint.id, _key(checkpoint)):
        return f"the call is pinned to {call.pin}"
    for name, accepts in call.packages.items():
        loaded = checkpoint.distributions.get(canonical_distribution(name))
        if loaded is not None and not (loaded and accepts(loaded)):
            return (
                f"{name} {loaded or 'of an unknown version'} is loaded, the call asks for another"
            )
    if not call.environment.isdisjoint(checkpoint.import_environment):
        names = ", ".join(sorted(call.environment & checkpoint.import_environment))
        return f"the call sets {names}, which was read while the checkpoint imported"
    if not call.own_modules.isdisjoint(checkpoint.modules):
        names = ", ".join(sorted(call.own_modules & checkpoint.modules))
        return f"the call brings its own {names}, which is loaded"
    least = int(checkpoint.size_mb * MIB) + MEMORY_MARGIN
    if 0 < call.memory < least:
        return f"it needs {least // MIB} MiB, the call's memory is {call.memory // MIB} MiB"
    return None


def checkpoint_facts(
    catalogue: Catalogue,
    generation: str = "",
    import_environment: Mapping[str, Iterable[str]] | None = None,
) -> Sequence[CheckpointFacts]:
    """The facts of every checkpoint of a catalogue, in its order.

    ``import_environment`` maps checkpoint ids to variable names, as ``manifest.json`` has them.
    """
    read = import_environment or {}
    facts = []
    for checkpoint in catalogue.checkpoints:
        items = catalogue.items
        held = {items[name].distribution for name in checkpoint.items if name in items}
        loaded = {canonical_distribution(name) for name in held if name}
        facts.append(
            CheckpointFacts(
                id=checkpoint.id,
                generation=generation,
                distributions={name: catalogue.distributions.get(name, "") for name in loaded},
                modules=frozenset(
                    name.partition(".")[0] for name in checkpoint.items if ":" not in name
                ),
                import_environment=frozenset(read.get(checkpoint.id, ())),
                size_mb=checkpoint.size_mb,
            )
        )
    return facts


def _key(checkpoint: CheckpointFacts) -> str:
    return f"{checkpoint.generation}/{checkpoint.id}"
