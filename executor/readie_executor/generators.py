"""Random generators of clones: found once before the checkpoint, reseeded in every clone."""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from readie_executor import openssl

SEED_BYTES = 32


class Generators:
    """Every generator object that the imports left behind.

    They are collected before `gc.freeze`, which hides objects from the collector: kept here, they
    stay reachable. A generator is reseeded whether its package had seeded it or not: nobody can
    tell, and equal numbers in two clones are the worse surprise.
    """

    def __init__(self) -> None:
        self._held = [found for found in _candidates() if _is_generator(found)]
        self._openssl = openssl.loaded()

    def __len__(self) -> int:
        return len(self._held)

    def reseed(self, entropy: bytes = b"") -> None:
        """Give all of them, and the modules' own, distinct new states.

        ``entropy`` comes from outside the clone and goes into each seed, beside the kernel's.
        """

        def seed() -> int:
            own = int.from_bytes(os.urandom(SEED_BYTES))
            return own ^ int.from_bytes(entropy[:SEED_BYTES].ljust(SEED_BYTES, b"\0"))

        for module, function in _RESEED_MODULE.items():
            if module in sys.modules:
                function(sys.modules[module], seed)
        for reseed_openssl in self._openssl:
            data = seed().to_bytes(SEED_BYTES)
            reseed_openssl(data, len(data), float(len(data)))
        for held in self._held:
            with contextlib.suppress(Exception):  # a subclass may refuse any seed
                _reseed_one(held, seed)


def _candidates() -> Iterator[Any]:
    yield from gc.get_objects()
    # Some extension types are unknown to the collector; modules hold them as plain attributes.
    for module in list(sys.modules.values()):
        yield from list(getattr(module, "__dict__", {}).values())


def _is_generator(candidate: Any) -> bool:
    kinds = _kinds()
    return bool(kinds) and isinstance(candidate, kinds)


def _kinds() -> tuple[type, ...]:
    names = {
        "random": ["Random"],
        "numpy.random": ["RandomState", "BitGenerator"],  # a Generator draws from one of these
        "torch": ["Generator"],
    }
    return tuple(
        getattr(sys.modules[module], name)
        for module, classes in names.items()
        if module in sys.modules
        for name in classes
        if hasattr(sys.modules[module], name)
    )


def _reseed_one(held: Any, seed: Callable[[], int]) -> None:
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(held, numpy.BitGenerator):
        # State and seed sequence: `spawn` makes children out of the latter.
        held.__setstate__(type(held)(seed()).__reduce__()[2])
    elif numpy is not None and isinstance(held, numpy.RandomState):
        _reseed_random_state(held)
    elif hasattr(held, "manual_seed"):
        held.manual_seed(seed() % 2**63)
    else:
        held.seed(seed())


def _reseed_random_state(held: Any) -> None:
    """Its bit generator is reseeded by itself; here only the Gaussian kept for the next draw."""
    state = held.get_state(legacy=False)
    held.set_state({**state, "has_gauss": 0, "gauss": 0.0})


def _reseed_random(module: Any, seed: Callable[[], int]) -> None:
    module.seed(seed())


def _reseed_numpy(module: Any, seed: Callable[[], int]) -> None:
    words = seed().to_bytes(SEED_BYTES)
    module.seed([int.from_bytes(words[i : i + 4]) for i in range(0, SEED_BYTES, 4)])


def _reseed_torch(module: Any, seed: Callable[[], int]) -> None:
    module.manual_seed(seed() % 2**63)


def _reseed_numba(module: Any, seed: Callable[[], int]) -> None:
    """Compiled functions draw from states of numba's own, for `numpy.random` and for `random`."""
    for state in (module.rnd_get_np_state_ptr(), module.rnd_get_py_state_ptr()):
        module.rnd_seed(state, seed().to_bytes(SEED_BYTES))


def _reseed_openssl(module: Any, seed: Callable[[], int]) -> None:
    module.RAND_add(seed().to_bytes(SEED_BYTES) + os.urandom(16), float(SEED_BYTES + 16))


def _reseed_cryptography(module: Any, seed: Callable[[], int]) -> None:
    """It brings an OpenSSL of its own, from which it draws private keys."""
    if can_reseed_cryptography(module):
        data = seed().to_bytes(SEED_BYTES) + os.urandom(16)
        module._openssl.lib.RAND_add(data, len(data), float(len(data)))


def can_reseed_cryptography(module: Any) -> bool:
    """Whether ``cryptography.hazmat.bindings._rust`` lets others have that function, as releases do."""
    lib = getattr(getattr(module, "_openssl", None), "lib", None)
    return hasattr(lib, "RAND_add")


_RESEED_MODULE: dict[str, Callable[[Any, Callable[[], int]], None]] = {
    "random": _reseed_random,
    "numpy.random": _reseed_numpy,
    "torch": _reseed_torch,
    "numba._helperlib": _reseed_numba,
    "cryptography.hazmat.bindings._rust": _reseed_cryptography,
    "_ssl": _reseed_openssl,  # equal OpenSSL states would mean equal TLS keys
}
