"""Logs on standard error: events and figures, never what people say.

On a terminal only what a person must know, as plain lines; elsewhere every event, one JSON object a
line, and what libraries and Python itself have to say in the same form.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from types import TracebackType
from typing import Any, BinaryIO, Literal, TextIO, cast

import orjson
import structlog
from structlog.dev import plain_traceback
from structlog.typing import EventDict, Processor, WrappedLogger

from bot.config import LogConfig
from bot.invocation import confidant

# What a person at a terminal is told of events: what they must know, each as a plain line.
#
# Each channel says itself how its connections are doing, in words, so what it logs about them
# beside that is left out, and so is what mends itself and takes nothing from anybody.

AGAIN_SECONDS = 600.0  # before the same line is told again
_MOST_TOLD = 500  # lines that are remembered for that

HEALTH = "channel.health"
LIBRARY = "library"  # what a library tells the standard library's logging
CRASHED = "program.crashed"
ENDED = "Confidant ended by a fault of its own. What was said is stored: start it again."
_SERIOUS = {"warning": "Warning", "error": "Error", "critical": "Error"}

_TOLD = tomllib.loads(resources.files("bot").joinpath("log_lines.toml").read_text("utf-8"))
SENTENCES: Mapping[str, str] = _TOLD["sentences"]
LEFT_OUT = frozenset[str](_TOLD["left_out"]["names"])
LEFT_OUT_ENDS = tuple[str, ...](_TOLD["left_out"]["ends"])
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what could command the terminal
_OWN = frozenset({"event", "level", "timestamp", "exc_info", "exception", "stack_info"})


class Lines:
    """The last step of a log: an event becomes a line, or is left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}
        self._health: dict[tuple[str, str], str] = {}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
        """The line of an event.

        Raises:
            structlog.DropEvent: there is none.
        """
        line = self._health_line(event) if event["event"] == HEALTH else line_of(event)
        line = _CONTROL.sub("", line)
        if not line or not self._is_new(line):
            raise structlog.DropEvent
        return line

    def _is_new(self, line: str) -> bool:
        now = self._clock()
        if now - self._told.get(line, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return False
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[line] = now
        return True

    def _health_line(self, event: Mapping[str, Any]) -> str:
        channel, account = str(event["channel"]), str(event["account"])
        before = self._health.get((channel, account), "")
        health = self._health[channel, account] = str(event["health"])
        name = channel if account == "default" else f"{channel} ({account})"
        if health in {"degraded", "down"}:
            return f"{name}: {event['detail'] or 'not connected'}"
        if health == "up" and before in {"degraded", "down"}:
            # What is told of it next is news again.
            for each in [each for each in self._told if each.startswith(f"{name}: ")]:
                del self._told[each]
            return f"{name}: connected again"
        return ""


def line_of(event: Mapping[str, Any]) -> str:
    """The sentence about one event; empty for none."""
    name, serious = str(event["event"]), _SERIOUS.get(str(event.get("level")), "")
    if not serious or _is_left_out(name, event):
        return ""
    if (sentence := SENTENCES.get(name)) is not None:
        try:
            return f"{serious}: {sentence.format_map({**event, 'confidant': confidant()})}"
        except (KeyError, ValueError, TypeError):  # it says less than usual
            pass
    facts = ", ".join(f"{key}: {value}" for key, value in event.items() if key not in _OWN)
    line = f"{serious}: {name}" + (f" ({facts})" if facts else "")
    if name == CRASHED:
        trace = "".join(traceback.format_exception(*event["exc_info"]))
        return f"{trace}{ENDED}"
    return line


def _is_left_out(name: str, event: Mapping[str, Any]) -> bool:
    if name == LIBRARY:
        return event.get("logger") == "py.warnings" or event.get("level") == "warning"
    return name in LEFT_OUT or name.endswith(LEFT_OUT_ENDS)


Form = Literal["plain", "console", "json"]

_log = structlog.get_logger(__name__)


def form_of(config: LogConfig) -> Form:
    """The form of logs: plain for a person, or every event for a machine."""
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


def about_turn(turn: str) -> None:
    """Name the turn in every line that this task logs from now on; none of them if it is empty."""
    structlog.contextvars.clear_contextvars()
    if turn:
        structlog.contextvars.bind_contextvars(turn=turn)


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
    """The target of a log; a full disk or a reader that is gone must stop no conversation."""

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
    """Messages of libraries to the standard library's logging, as events like ours."""

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
