"""What is free on this worker right now: slots and memory, counted."""

from dataclasses import dataclass


@dataclass(slots=True)
class Capacity:
    """Counts what running calls hold. ``memory`` is in bytes; a call holds one slot."""

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

    def hold(self, memory: int) -> None:
        self.used_slots += 1
        self.used_memory += memory

    def release(self, memory: int) -> None:
        self.used_slots -= 1
        self.used_memory -= memory
