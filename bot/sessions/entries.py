"""Transcript entries: values, and their line in a JSONL file. Pure.

A transcript is a header line, then one line an entry, each with its id and its parent's. `line`
is what the database keeps and the mirror file holds, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, cast, get_args

import orjson

from bot.messages import THOUGHTS, Whose

FORMAT_VERSION = 1
GONE = "(forgotten, as the person wished)"

_NOTHING: Mapping[str, Any] = {}
_KNOWN_BLOCKS = frozenset({"text", "tool_use", "tool_result"})

Kind = Literal["message", "command", "notice", "compaction"]
Role = Literal["user", "assistant"]
Mark = Literal["", "aside", "stopped"]


@dataclass(frozen=True, slots=True)
class NewEntry:
    """Something to append. `text` is what a person reads and finds again by its words.

    "message" goes to the model; "command" and "notice" (what a person typed to the bot itself, and
    what the bot answered, also a message that was set aside) are kept but never sent; of
    "compaction" see `bot.sessions.compactions`.
    `content` is what the model saw or said, as JSON blocks; empty for the other kinds. `source` is
    the platform's id of the message it came with, empty for what the bot said. `below` is what
    people read under the text, such as what a reply cost; nobody finds it by its words. `said_at`
    is when a message was sent, which may be long before its answer is stored, or 0. `files` are the
    refs of those that came with it and are kept for a while (`bot.sessions.uploads`). `failed` are
    the platform's ids of messages that this says were not answered, where asking again may help.
    `mark` is for a page: "aside" on a command and its answer that it shows as one sentence between
    the lines, "stopped" on the notice that a reply was stopped.
    """

    kind: Kind
    role: Role
    text: str
    content: tuple[Mapping[str, Any], ...] = ()
    source: str = ""
    below: str = ""
    said_at: int = 0
    files: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a transcript. `at` is in ms since the epoch; the rest as in `NewEntry`."""

    id: str
    parent_id: str | None
    kind: Kind
    role: Role
    at: int
    text: str
    content: tuple[Mapping[str, Any], ...]
    source: str
    below: str = ""
    said_at: int = 0
    files: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    mark: Mark = ""

    @property
    def session_id(self) -> str:
        """The session it belongs to."""
        return self.id.rpartition(".")[0]

    @property
    def said_or_at(self) -> int:
        """The time it was said, as far as that is known, in ms since the epoch."""
        return self.said_at or self.at

    @property
    def shown(self) -> str:
        """All that a person read of it; nothing when it has no text (any more)."""
        return self.text and self.text + self.below


def entry_id(session_id: str, number: int) -> str:
    """The id of a session's n-th entry, counted from 1."""
    return f"{session_id}.{number}"


def number_of(id_: str) -> int:
    """The number of an entry's id, counted from 1."""
    return int(id_.rpartition(".")[2])


def line_of(new: NewEntry, id_: str, parent_id: str | None, at: int) -> str:
    """The entry's line, without the line break."""
    message: dict[str, Any] = {"role": new.role, "text": new.text}
    said_at = new.said_at if 0 < new.said_at < at else 0
    more = {"content": new.content, "source": new.source, "below": new.below, "saidAt": said_at}
    more |= {"files": new.files, "failed": new.failed, "mark": new.mark}
    message |= {name: value for name, value in more.items() if value}
    record = {"type": new.kind, "id": id_, "parentId": parent_id, "at": at, "message": message}
    return orjson.dumps(record).decode()


def to_append(entry: Entry) -> NewEntry:
    """An entry as it was before it stood in a transcript."""
    return NewEntry(**{each.name: getattr(entry, each.name) for each in fields(NewEntry)})


def without_thoughts(line: str) -> str:
    """A line without what a model thought, which its service alone is to have back."""
    if '"opaque"' not in line:
        return line
    record = orjson.loads(line)
    blocks = record.get("message", {}).get("content") or ()
    thoughts = [each for each in blocks if each.get("data", _NOTHING).get("type") in THOUGHTS]
    if not thoughts:
        return line
    record["message"]["content"] = [each for each in blocks if each not in thoughts]
    return orjson.dumps(record).decode()


def parse(line: str | bytes) -> Entry:
    """The entry of a line.

    Raises:
        ValueError: it is not a line this program wrote.
    """
    try:
        record = cast("dict[str, Any]", orjson.loads(line))
        message = cast("dict[str, Any]", record["message"])
        content = cast("list[dict[str, Any]]", message.get("content", []))
        return Entry(
            id=str(record["id"]),
            parent_id=record["parentId"],
            kind=record["type"],
            role=message["role"],
            at=int(record["at"]),
            text=str(message["text"]),
            content=tuple(content),
            source=str(message.get("source", "")),
            below=str(message.get("below", "")),
            said_at=int(message.get("saidAt", 0)),
            files=tuple(cast("list[str]", message.get("files", []))),
            failed=tuple(cast("list[str]", message.get("failed", []))),
            mark=message.get("mark", ""),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError("not a transcript entry") from exc


def header_line(facts: Mapping[str, str | int | None]) -> str:
    """The first line of a session's file, without the line break: what the session began as."""
    return orjson.dumps({"type": "session", "version": FORMAT_VERSION, **facts}).decode()


def veil(entry: Entry, blocks: set[int]) -> Entry:
    """An entry without what some of its blocks said; calls and answers stay pairs. Pure."""
    shown = (_bare(block) if n in blocks else block for n, block in enumerate(entry.content))
    # A block only the model's service understands may repeat what the others said.
    content = tuple(block for block in shown if block.get("type") in _KNOWN_BLOCKS)
    gone = (block for n, block in enumerate(entry.content) if n in blocks)
    said = any(block.get("type") == "text" and not block.get("note") for block in gone)
    text, files = ("", ()) if said else (entry.text, entry.files)
    return replace(entry, text=text, content=content, files=files)


def _bare(block: Mapping[str, Any]) -> Mapping[str, Any]:
    left = {name: value for name, value in block.items() if name != "facts"}
    match block.get("type"):
        case "text":
            return {**left, "text": f"{GONE}\n" if block.get("note") else GONE}
        case "tool_use":
            return {**left, "input": {}}
        case "tool_result":
            return {**left, "content": GONE}
        case _:
            return {}


# Conversations that took place with another program: how they are told from those held here.
# Pure.
#
# Their session has the channel "import:<source>", which no channel can be called, and
# `started_by` "import"; what is said in them is marked as `imported`, so it counts neither as
# this bot's memory nor as words that were said to it.

Source = Literal[
    "chatgpt",
    "claude",
    "openclaw",
    "openwebui",
    "librechat",
    "astrbot",
    "telegram",
    "whatsapp",
    "jsonl",
    "markdown",
]

NAMES: Final[dict[Source, str]] = {
    "chatgpt": "ChatGPT",
    "claude": "Claude",
    "openclaw": "OpenClaw",
    "openwebui": "Open WebUI",
    "librechat": "LibreChat",
    "astrbot": "AstrBot",
    "telegram": "Telegram",
    "whatsapp": "WhatsApp",
    "jsonl": "JSONL",
    "markdown": "Markdown",
}
IMPORTED_ORIGIN: Final[Whose] = "imported"
IMPORTED_ID: Final = "import-"  # what their sessions' ids begin with
_PREFIX = "import:"


def imported_channel(source: Source) -> str:
    """The channel of sessions that come from another program."""
    return f"{_PREFIX}{source}"


def is_imported(id_: str) -> bool:
    """True for the id of such a session, or of an entry of it."""
    return id_.startswith(IMPORTED_ID)


def imported_name(channel: str) -> str:
    """The program a session comes from, in words; empty for one that was held here."""
    source = channel.removeprefix(_PREFIX)
    if source == channel:
        return ""
    return next((NAMES[each] for each in get_args(Source) if each == source), source)
