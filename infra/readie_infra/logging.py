"""One line an event on stderr, for people or as JSON, whoever logs it: us, uvicorn or redis."""

import logging
import sys
from typing import Literal

import structlog

_SHARED: tuple[structlog.types.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


# They tell of every request, and below INFO of its headers.
_CHATTY = ("boto3", "botocore", "s3transfer")


def configure_logging(
    format: Literal["console", "json"] = "console",  # noqa: A002 - the word users write
    level: str = "info",
) -> None:
    """Send all logging of this process to stderr. Called once, by a ``__main__``.

    Loggers come from ``structlog.stdlib.get_logger(__name__)`` and ``logging.getLogger``.
    """
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _renderers(format: str) -> list[structlog.types.Processor]:  # noqa: A002 - as above
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The richer one prints local variables, and with them secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]
