"""Whether the servers that ``readie up`` starts are installed: the base install is the SDK alone."""

import importlib.util

HOW_TO_GET = "pip install 'readie[gateway,worker,embedded]'"
# One library of each extra that the servers cannot do without.
_TELLING = ("starlette", "uvicorn", "redis", "pydantic_settings", "structlog")


def missing_libraries() -> list[str]:
    """The libraries of gateway and worker that are not here."""
    return [name for name in _TELLING if importlib.util.find_spec(name) is None]
