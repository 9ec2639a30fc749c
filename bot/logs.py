"""Logs on standard error: events and figures, never what people say.

On a terminal only what a person must know, as plain lines; elsewhere every event, one JSON object a
line, and what libraries and Python itself have to say in the same form.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, BinaryIO, Literal, TextIO, cast

import orjson
import structlog
from structlog.dev import plain_traceback
from structlog.typing import EventDict, Processor

from bot.config import LogConfig
from bot.log_lines import CRASHED, LIBRARY, Lines

Form = Literal["plain", "console", "json"]

_log = structlog.get_logger(__name__)


def form_of(config: LogConfig) -> Form:
    """What logs look like: plain for a person, or every event for a machine."""
    if config.format != "auto":
        return config.format
    return "plain" if sys.stderr.isatty() else "json"


def configure(config: LogConfig, *, for_good: bool = True) -> Form:
    """Set up structlog, and the standard library's logging for the libraries that use it.

    With `for_good` each logger keeps what it found here at its first event.
    """
    level = logging.getLevelNamesMapping()[config.level.upper()]
    form = form_of(config)
    factory: structlog.BytesLoggerFactory | structlog.PrintLoggerFactory
    if form == "json":
        factory = structlog.BytesLoggerFactory(cast("BinaryIO", _Forgiving(sys.stderr.buffer)))
    else:
        factory = structlog.PrintLoggerFactory(cast("TextIO", _Forgiving(sys.stderr)))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(form),
        ],
        logger_factory=factory,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=for_good,
    )
    # Libraries may quote requests in their messages, so only their serious words are let through.
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[_Libraries()], force=True)
    return form


def take_over() -> None:
    """Have what Python itself would write onto standard error told as events, too."""

    def crashed(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            _log.critical(CRASHED, error=kind.__name__, exc_info=(kind, error, at))

    def in_thread(said: threading.ExceptHookArgs) -> None:
        if said.exc_value is not None and said.exc_type is not SystemExit:
            name = said.thread.name if said.thread is not None else ""
            _log.error(
                "thread.failed", thread=name, error=said.exc_type.__name__, exc_info=said.exc_value
            )

    def unraisable(said: Any) -> None:
        _log.error("program.unraisable", error=said.exc_type.__name__, exc_info=said.exc_value)

    logging.captureWarnings(capture=True)
    sys.excepthook = crashed
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable


def _rendering(form: Form) -> list[Processor]:
    if form == "json":
        as_json = structlog.processors.JSONRenderer(serializer=_json)
        return [structlog.processors.format_exc_info, as_json]
    if form == "plain":
        return [Lines()]
    return [
        structlog.dev.ConsoleRenderer(colors=_has_colours(), exception_formatter=plain_traceback)
    ]


def _has_colours() -> bool:
    """See https://no-color.org."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _json(event: EventDict, **options: Any) -> bytes:
    try:
        return orjson.dumps(event, **options)
    except (TypeError, RecursionError):  # half a character, such as a file's name may have
        text = json.dumps(event, default=repr, skipkeys=True, ensure_ascii=False)
        return text.encode("utf-8", "replace")


class _Forgiving:
    """Where a log goes; a full disk or a reader that is gone must stop no conversation."""

    def __init__(self, stream: BinaryIO | TextIO) -> None:
        self._stream = stream

    def write(self, data: Any) -> None:
        """Write what the disk takes."""
        with suppress(OSError, ValueError):
            self._stream.write(data)

    def flush(self) -> None:
        """Let it be seen."""
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Libraries(logging.Handler):
    """What libraries tell the standard library's logging, as events like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it; whatever is wrong with a library's own words, nothing else is written."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - its words and their values do not fit together
            message = str(record.msg)
        level = record.levelno if record.levelno in logging.getLevelNamesMapping().values() else 30
        structlog.get_logger().log(
            level, LIBRARY, logger=record.name, message=message, exc_info=record.exc_info
        )
