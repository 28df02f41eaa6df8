"""How both sides pickle what neither pickle nor cloudpickle can."""

import functools
from collections.abc import Callable
from typing import Any


def reduce_cached_property(
    prop: "functools.cached_property[Any]",
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Without its lock, which it has in Python 3.11. Its name is set by a ``class`` statement alone."""
    return functools.cached_property, (prop.func,), {"attrname": prop.attrname}
