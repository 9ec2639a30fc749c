"""Messages as JSON blocks and back, as transcripts keep them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

import orjson

from bot import messages
from bot.context.history import HistoryMessage
from bot.errors import ModelBadReply
from bot.messages import Block, Canned, Message, Opaque, Picture, Text, ToolResult, ToolUse, Whose
from bot.sessions.entries import Entry, NewEntry
from bot.unicode import well_formed

_ORIGINS = frozenset(get_args(Whose))
_TIME = re.compile(r"\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d\]\n")


def new_entry(
    message: Message, *, text: str | None = None, source: str = "", said_at: int = 0
) -> NewEntry:
    """The entry of a message.

    `text` is what the person wrote when it is not the message's own, `source` the platform's id
    and `said_at` when it was sent.
    """
    words = message.text if text is None else text
    blocks = tuple(to_json(block) for block in message.blocks)
    return NewEntry("message", message.role, words, blocks, source, said_at=said_at)


def message_of(entry: Entry) -> Message:
    """The message of an entry."""
    return Message(entry.role, tuple(from_json(block) for block in entry.content))


def origins_of(content: Iterable[Mapping[str, Any]]) -> frozenset[Whose]:
    """Whose words an entry's content holds; a summary's too."""
    found: set[Whose] = set()
    for data in content:
        block = from_json(data)
        if isinstance(block, (Text, ToolResult)):
            found.add(block.origin)
        elif data.get("type") == "compaction":
            found.add(_known(data.get("origin")))
    return frozenset(found)


def is_canned(content: Iterable[Mapping[str, Any]]) -> bool:
    """True for the content of what the offline model said: it answers no question."""
    told = (data["facts"] for data in content if "facts" in data)
    return any(isinstance(messages.result_from_json(each), Canned) for each in told)


def to_json(block: Block) -> Mapping[str, Any]:
    """One block as JSON; the shapes are those of the Messages API."""
    match block:
        case Text(text, note, origin, told):
            noted = {"note": True} if note else {}
            kept = {} if told is None else {"facts": messages.result_to_json(told)}
            return {"type": "text", "text": text, "origin": origin, **noted, **kept}
        case ToolUse(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": arguments}
        case ToolResult(id_, text, is_error, origin, told, kept):
            return {
                "type": "tool_result",
                "tool_use_id": id_,
                "content": text,
                "origin": origin,
                "facts": None if told is None else messages.result_to_json(told),
                **({"kept": kept} if kept else {}),
                **({"is_error": True} if is_error else {}),
            }
        case Picture(media_type, ref):
            return {"type": "image", "media_type": media_type, "artifact": ref}
        case Opaque(data, service):
            return {"type": "opaque", "service": service, "data": data} if service else data


def from_json(data: Mapping[str, Any]) -> Block:
    """The block of its JSON; a type nobody here knows stays as it is."""
    told = messages.result_from_json(data["facts"]) if "facts" in data else None
    match data:
        case {"type": "text", "text": str(text)}:
            return Text(text, bool(data.get("note")), _known(data.get("origin")), told)
        case {"type": "tool_use", "id": str(id_), "name": str(name)}:
            return ToolUse(id_, name, data.get("input") or {})
        case {"type": "tool_result", "tool_use_id": str(id_), "content": str(text)}:
            is_error, origin = bool(data.get("is_error")), _known(data.get("origin"))
            kept = str(data.get("kept", ""))
            return ToolResult(id_, text, is_error, origin, told, kept)
        case {"type": "image", "media_type": str(media_type), "artifact": str(ref)}:
            return Picture(media_type, ref)
        case {"type": "opaque", "service": str(service), "data": {**held}}:
            return Opaque(held, service)
        case _:
            return Opaque(data)


def _known(origin: object) -> Whose:
    return cast("Whose", origin) if origin in _ORIGINS else "unknown"


def storable(message: Message) -> Message:
    """The message, with what no transcript can hold written as near to it as can be.

    Raises:
        ModelBadReply: it cannot be written at all.
    """
    blocks = [to_json(block) for block in message.blocks]
    try:
        orjson.dumps(blocks)
    except TypeError:  # half a UTF-16 pair, a number beyond 64 bits, or nested too deep
        try:
            raw = well_formed(json.dumps(blocks, ensure_ascii=False))
            plain = json.loads(raw, parse_int=_bounded)
            orjson.dumps(plain)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ModelBadReply from exc
        return replace(message, blocks=tuple(from_json(block) for block in plain))
    return message


def _bounded(digits: str) -> int | float:
    number = int(digits)
    return number if -(2**63) <= number < 2**63 else float(number)


def lines_of(found: Sequence[Entry]) -> list[HistoryMessage]:
    """The lines of a conversation, from its entries."""
    kept = {entry.id: entry.at for entry in found}
    pairs = _repaired((entry.id, message_of(entry)) for entry in found)
    return [HistoryMessage(id_, kept[id_], message) for id_, message in pairs]


def repaired(messages: Iterable[Message]) -> list[Message]:
    """The messages with every tool call answered and every answer asked for.

    A turn that was stopped between a call and its result leaves a call no model accepts; a window
    that begins in mid-turn leaves a result without its call.
    """
    return [message for _, message in _repaired(("", message) for message in messages)]


def _repaired(messages: Iterable[tuple[str, Message]]) -> list[tuple[str, Message]]:
    """The same with ids; what is added has the id of the message before it."""
    found: list[tuple[str, Message]] = []
    for id_, message in messages:
        asked = _calls(found[-1][1]) if found else ()
        answered = {b.tool_use_id for b in message.blocks if isinstance(b, ToolResult)}
        blocks = [
            b for b in message.blocks if not isinstance(b, ToolResult) or b.tool_use_id in asked
        ]
        missing = [call for call in asked if call not in answered]
        if missing:
            results = tuple(_stopped(call) for call in missing)
            if message.role == "user":
                blocks = [*results, *blocks]
            else:
                found.append((found[-1][0], Message("user", results)))
        if blocks:
            found.append((id_, Message(message.role, tuple(blocks))))
    if found and (left := _calls(found[-1][1])):
        results = tuple(_stopped(call) for call in left)
        found.append((found[-1][0], Message("user", results)))
    return found


def _calls(message: Message) -> tuple[str, ...]:
    if message.role != "assistant":
        return ()
    return tuple(block.id for block in message.blocks if isinstance(block, ToolUse))


def _stopped(call: str) -> ToolResult:
    return ToolResult(call, "(stopped)", is_error=True, origin="program")
