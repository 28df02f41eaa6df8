"""OpenSSL libraries in this process: packages may bring their own, each with a random state of its own.

A database driver's, say, draws the keys of its TLS connections from it. In a process that is saved
whole, OpenSSL cannot tell that it is a copy, as it does after a fork.
"""

import os
from collections.abc import Callable

Reseed = Callable[[bytes, int, float], object]  # `RAND_add`: bytes, how many, their entropy


def loaded() -> list[Reseed]:
    """`RAND_add` of every OpenSSL library that is mapped into this process (Linux).

    ctypes is loaded only where there is any, and before the checkpoint, so that no clone pays for it.
    """
    paths = _mapped_libraries()
    if not paths:
        return []
    import ctypes

    found: list[Reseed] = []
    for path in paths:
        try:
            reseed = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY).RAND_add
        except (OSError, AttributeError):  # taken away meanwhile, or of another kind
            continue
        reseed.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_double)
        reseed.restype = None
        found.append(reseed)
    return found


def _mapped_libraries() -> list[str]:
    try:
        with open("/proc/self/maps", "rb") as file:  # noqa: PTH123 - pathlib stays unloaded
            lines = file.read().decode(errors="surrogateescape").splitlines()
    except OSError:
        return []
    mapped = {line.split(None, 5)[-1] for line in lines if "libcrypto" in line}
    return sorted(path for path in mapped if path.rpartition("/")[2].startswith("libcrypto"))
