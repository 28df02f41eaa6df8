"""What can go wrong with a bucket.

InfraError
└── ObjectError
    ├── ObjectKeyError               not a key: it could climb out of its folder
    ├── ObjectMissingError           there is no object of that key
    ├── ObjectConflictError          the condition of a put did not hold: somebody else was first
    ├── ObjectStoreUnavailableError  the store cannot be reached, or refuses to do its part
    └── UnfitStoreError              the store ignores conditions, so publishing to it is not safe
"""

from readie_infra.errors import InfraError


class ObjectError(InfraError):
    """An object could not be had or stored. ``key`` names it."""

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(f"object {key}: {detail}")
        self.key = key


class ObjectKeyError(ObjectError):
    """The key is not made of safe parts, such as ``flavors/cpu/any/current.json``."""


class ObjectMissingError(ObjectError):
    """There is no object of that key."""


class ObjectConflictError(ObjectError):
    """A conditional put found another object there, or none where one was expected."""


class ObjectStoreUnavailableError(ObjectError):
    """The store could not be used, or gave a wrong answer; the cause is chained."""


class UnfitStoreError(ObjectError):
    """The store accepted a put whose condition did not hold."""
