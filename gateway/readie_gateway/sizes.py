"""Amounts of memory as callers write them: bytes, or a number with a unit."""

import re

# Decimal units as in "2G", binary ones as in "512Mi"; a trailing B is allowed ("2GB", "512MiB").
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE | re.ASCII)


def parse_size(value: object) -> int:
    """Bytes of ``536870912``, ``"512Mi"`` or ``"2G"``. Raises `ValueError` that says what is read."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or (match := _SIZE.fullmatch(value)) is None:
        raise ValueError('must be a number of bytes, or a text such as "512Mi" or "2G"')
    number, unit = match.group(1), (match.group(2) or "").lower()
    return round(float(number) * {**_UNITS, **_BINARY_UNITS}[unit])


def describe_size(count: int) -> str:
    """``"512 MiB"``: the largest binary unit that leaves at least one."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"
