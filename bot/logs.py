"""Structured logs on standard error: events and figures, never what people say."""

from __future__ import annotations

import logging
import sys

import orjson
import structlog
from structlog.dev import plain_traceback

from bot.config import LogConfig


def configure(config: LogConfig) -> None:
    """Set up structlog, and the standard library's logging for the libraries that use it."""
    level = logging.getLevelNamesMapping()[config.level.upper()]
    factory: structlog.BytesLoggerFactory | structlog.PrintLoggerFactory
    rendering: list[structlog.typing.Processor]
    if config.format == "json" or (config.format == "auto" and not sys.stderr.isatty()):
        factory = structlog.BytesLoggerFactory(sys.stderr.buffer)
        as_json = structlog.processors.JSONRenderer(serializer=orjson.dumps)
        rendering = [structlog.processors.format_exc_info, as_json]
    else:
        factory = structlog.PrintLoggerFactory(sys.stderr)
        rendering = [structlog.dev.ConsoleRenderer(exception_formatter=plain_traceback)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        logger_factory=factory,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    # Libraries may quote requests in their messages, so only their serious words are let through.
    logging.basicConfig(
        level=max(level, logging.WARNING), format="%(levelname)s %(name)s %(message)s", force=True
    )
