"""Structured logs on standard error: events and figures, never what people say."""

from __future__ import annotations

import logging
import sys

import orjson
import structlog
from structlog.dev import plain_traceback

from bot.config import LogConfig

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(config: LogConfig) -> None:
    """Set up structlog, and the standard library's logging for the libraries that use it."""
    level = _LEVELS[config.level]
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())
    if as_json:
        structlog.configure(
            processors=[
                *processors,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(serializer=orjson.dumps),
            ],
            logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
            wrapper_class=structlog.make_filtering_bound_logger(level),
            cache_logger_on_first_use=True,
        )
    else:
        structlog.configure(
            processors=[
                *processors,
                structlog.dev.ConsoleRenderer(exception_formatter=plain_traceback),
            ],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            wrapper_class=structlog.make_filtering_bound_logger(level),
            cache_logger_on_first_use=True,
        )
    # Libraries may quote requests in their messages, so only their serious words are let through.
    logging.basicConfig(
        level=max(level, logging.WARNING), format="%(levelname)s %(name)s %(message)s", force=True
    )
