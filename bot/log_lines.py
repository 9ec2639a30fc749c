"""What a person at a terminal is told of events: what they must know, each as a plain line.

Each channel says itself how its connections are doing, in words, so what it logs about them beside
that is left out, and so is what mends itself and takes nothing from anybody.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Mapping
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

SENTENCES: Mapping[str, str] = {
    "aftercare.failed": "What comes after a reply failed ({what}: {error}). The reply was sent.",
    "archive.database_unreadable": "The database that is there cannot be read ({error}), so what "
    "was forgotten there is not known.",
    "background.failed": "Something that runs beside the conversations failed ({error}). Start it "
    "again to have it back.",
    "changes.set_aside": "A log of changes is not this database's and was renamed: {files}.",
    "changes.write_failed": "The log of changes cannot be written ({error}). Look at the disk of "
    "the storage folder; a copy of the database is made as soon as that works.",
    "channel.start.failed": "The channel {channel} could not be started.",
    "clock.no_zone": "This machine says no time zone, so {used} is used. [session] timezone names "
    "another.",
    "command.failed": "A command in {channel} failed by a fault of this program, and is tried "
    "once more.",
    "delivery.parked": "A text for {channel} could not be sent. It is kept and tried again; "
    "`{confidant} doctor` lists it.",
    "job.failed": "The regular job {job} failed ({error}). It is done again at its next time.",
    "mcp.failed": "The tool server {server} does not run ({error}). It is started again; "
    "`{confidant} doctor` says what is wrong.",
    "memory.embed_failed": "Notes are found by their words alone for now: {reason}.",
    "memory.index_rebuilt": "The index of memory was damaged and is built anew. No note is lost.",
    "memory.sync_failed": "The index of memory could not be brought up to date ({error}). It is "
    "tried again.",
    "memory.watch_failed": "Edited notes are noticed later, because the folder cannot be watched "
    "({error}).",
    "message.set_aside": "A message from {channel} could not be answered and was set aside. Its "
    "words are kept, and its person was told.",
    "model.failed": "The model {model} did not answer: {error}",
    "model.passed_on": "The model {model} did not answer ({error}), so the next one is asked.",
    "node.disconnected": "This node lost its connection to the database ({error}) and makes it "
    "again.",
    "retention.due": "Months older than {keep_months} are dropped in {seconds:.0f} s: {months}.",
    "retention.dropped": "The month {month} was dropped: {entries} entries.",
    "settings.shared_refused": "Settings made on another node do not fit here and are left out: "
    "{options}.",
    "speech.refused": "The service for speech refused the request (status {status}).",
    "storage.backup_failed": "The database could not be backed up ({error}). It is tried again; "
    "look at the disk of the storage folder.",
    "storage.brought_back": "Changes that the database had lost were brought back from its log.",
    "storage.folder_left": "What {folder} holds is not in the database that is used: {hint}.",
    "storage.restored": "The database was damaged. Its newest sound backup, {backup}, has taken "
    "its place.",
    "storage.retry": "Something could not be stored ({error}). It is tried again.",
    "storage.waiting": "The database {server} cannot be reached, and is waited for: {reason}",
    "storage.write_failed": "Something could not be stored ({error}). Look at the disk of the "
    "storage folder, or at the database's server.",
    "tool.failed": "The tool {tool} failed ({error}). The model was told, and went on.",
    "tool.timeout": "The tool {tool} did not answer within {seconds:g} s.",
    "tools.plugin_failed": "The tools of {package} cannot be used: {problem}",
    "turn.failed": "A reply failed by a fault of this program; its person was told.",
    "usage.not_counted": "What a reply used could not be counted ({error}).",
    "web.search.missing": "Searching the web needs a package that is not installed: {install}",
    "workspace.not_prepared": "The workspace could not be prepared ({error}). Look at its "
    "permissions.",
    "workspace.older_memory": "{name} in the workspace is called MEMORY.md now.",
}

# What is told otherwise, or mends itself.
LEFT_OUT = frozenset(
    {
        "channel.menu.failed",
        "code.not_coloured",
        "command.fenced",
        "media.unreadable",
        "recall.late",
        "turn.taken_back",
        "web.socket.slow",
        "web.socket.stalled",
        "worker.fenced",
    }
)
LEFT_OUT_ENDS = (
    ".account.incomplete",
    ".account.lost",
    ".button.left_out",
    ".connection.failed",
    ".connection.refused",
    ".file.left_out",
    ".menu.failed",
    ".menu.skipped",
    ".poll.conflict",
    ".poll.limited",
    ".resume.failed",
    ".send.simplified",
    ".store.failed",
    ".token.rejected",
    ".webhook.port",
)
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
