"""What was said in a session of OpenClaw, from the events of its transcript. Pure.

An event is a line of a JSONL file or a row of its database. All that was said is read, in order:
what was undone or forked there was said all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bot.importing.values import Said, items, mapping, milliseconds, moment, words

# What the program put before and behind a person's words in some of its versions.
_ABOUT = re.compile(
    r"(?:Conversation info|Sender|Thread starter|Replied message|Forwarded message context)"
    r" \(untrusted[^)\n]*\):\n```json\n.*?\n```\n*",
    re.DOTALL,
)
_ENVELOPE = re.compile(r"\[[^\]\n]{0,300}\d{4}-\d\d-\d\d[ T]\d\d:\d\d[^\]\n]{0,60}\] ?")
_NUMBER = re.compile(r"\n?\[message_id: [^\]\n]*\]\s*$")
_DIRECTIVE = re.compile(r"\[\[\s*(?:reply_to_current|reply_to:[^\]\n]*|audio_as_voice)\s*\]\]\s*")
_SILENT: Final = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
_RESETS: Final = frozenset({"/new", "/reset"})
# What the program itself said in a person's place.
_PROMPTS = (
    "Read HEARTBEAT.md if it exists",
    "Pre-compaction memory flush",
    "A new session was started via /new or /reset",
    "System: ",
)


def said_in(events: Iterable[object]) -> Iterator[Said | None]:
    """The messages of a transcript; None for each in which there is nothing to read."""
    for event in map(mapping, events):
        # The oldest transcripts have the messages themselves, one a line.
        message = mapping(event.get("message")) if event.get("type") == "message" else event
        role = words(message.get("role"))
        if role not in {"user", "assistant"} or (message is event and event.get("type")):
            continue
        whole = _text(message.get("content"))
        text = _of_person(whole) if role == "user" else _of_model(whole)
        if not text:
            if not whole and _is_shown(message.get("content")):
                yield None
            continue
        at = milliseconds(message.get("timestamp")) or moment(event.get("timestamp"))
        yield Said(words(event.get("id")), "user" if role == "user" else "assistant", text, at)


def _text(content: object) -> str:
    """The words of a message: a text, or blocks of which some are."""
    if isinstance(content, str):
        return content.strip()
    blocks = [mapping(each) for each in items(content)]
    texts = [words(each.get("text")) for each in blocks if each.get("type") == "text"]
    return "\n\n".join(filter(None, texts)).strip()


def _is_shown(content: object) -> bool:
    """True for blocks that a person saw, such as pictures, and not only for calls of tools."""
    hidden = {"toolCall", "tool_use", "thinking", "toolResult"}
    return any(words(mapping(each).get("type")) not in hidden for each in items(content))


def _of_person(text: str) -> str:
    bare = text
    while found := _ABOUT.match(bare):
        bare = bare[found.end() :]
    if found := _ENVELOPE.match(bare):
        bare = bare[found.end() :]
    bare = _NUMBER.sub("", bare).strip()
    is_programs = bare.startswith(_PROMPTS) or bare in _RESETS
    return "" if is_programs else bare


def _of_model(text: str) -> str:
    bare = _DIRECTIVE.sub("", text).strip()
    return "" if bare in _SILENT else bare


def began_at(events: Iterable[Mapping[str, object]]) -> int:
    """When a transcript began, by its header, in ms since the epoch; 0 when it does not say."""
    headers = (event for event in events if event.get("type") == "session")
    return next((moment(header.get("timestamp")) for header in headers), 0)
