"""Whether what ``readie up`` starts is installed: the base install is the SDK alone."""

import importlib.util

HOW_TO_GET = "pip install 'readie[gateway,worker,embedded]'"
# One library of each extra that the servers cannot do without.
_TELLING = ("starlette", "uvicorn", "redis", "pydantic_settings", "structlog")
HOW_TO_GET_PIPELINE = "pip install 'readie[pipeline]'"
_TELLING_PIPELINE = ("matplotlib", "numpy", "requests", "rq")


def missing_libraries() -> list[str]:
    """The libraries of gateway and worker that are not here."""
    return _missing(_TELLING)


def missing_for_pipeline() -> list[str]:
    """The libraries of the pipeline that are not here."""
    return _missing(_TELLING_PIPELINE)


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if importlib.util.find_spec(name) is None]
