"""What a person at a terminal is told of events: what they must know, each as a plain line.

Each channel says itself how its connections are doing, in words, so what it logs about them beside
that is left out, and so is what mends itself and takes nothing from anybody.
"""

from __future__ import annotations

import re
import time
import tomllib
import traceback
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from bot.invocation import confidant

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
    """What is told of one event; empty for nothing."""
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
