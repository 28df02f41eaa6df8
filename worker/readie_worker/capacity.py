"""What is free on this worker right now: slots and memory, counted."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Grant:
    """The bytes of memory that a call or a session holds, which may become more."""

    memory: int


@dataclass(slots=True)
class Capacity:
    """Counts what running calls and sessions hold. ``memory`` is in bytes."""

    slots: int
    memory: int
    used_slots: int = 0
    used_memory: int = 0

    @property
    def free_slots(self) -> int:
        return max(0, self.slots - self.used_slots)

    @property
    def free_memory(self) -> int:
        return max(0, self.memory - self.used_memory)

    def hold(self, memory: int) -> Grant:
        """A slot and memory, for a call."""
        self.occupy()
        return self.reserve(memory)

    def release(self, grant: Grant) -> None:
        self.vacate()
        self.free(grant)

    def occupy(self) -> None:
        """A slot alone, for a call of a session."""
        self.used_slots += 1

    def vacate(self) -> None:
        self.used_slots -= 1

    def reserve(self, memory: int) -> Grant:
        """Memory alone, for a session, which keeps it between its calls."""
        self.used_memory += memory
        return Grant(memory)

    def extend(self, grant: Grant, wanted: int) -> None:
        """As much of ``wanted`` as is free; never less than it has."""
        more = max(0, min(wanted - grant.memory, self.free_memory))
        grant.memory += more
        self.used_memory += more

    def free(self, grant: Grant) -> None:
        self.used_memory -= grant.memory
