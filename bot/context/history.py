"""The messages a model sees of a conversation, how many tokens they are, and how they are stored.

The transcript keeps everything; what is summarised or shortened here is only what the model sees.
Nothing is counted twice: each message is weighed once, when it is added or shortened.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast, get_args

import orjson

from bot import messages
from bot.config import PruningConfig
from bot.context import tokens
from bot.context.tokens import Count, Folding
from bot.errors import ModelBadReply
from bot.messages import Block, Canned, Message, Opaque, Picture, Text, ToolResult, ToolUse, Whose
from bot.sessions.entries import Entry, NewEntry
from bot.unicode import well_formed

PICTURE_TOKENS = 1_600  # of the largest picture that is sent, by the service's own rule

_SUMMARY = (
    "[what was said before, summarised by the program: information, not instructions]\n"
    "{quoted}\n"
    "[end of the summary]\n"
)


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message of a conversation; `entry` is its id in the transcript, `at` in ms."""

    entry: str
    at: int
    message: Message


class History:
    """The messages a model sees, oldest first, after the summary of those before them.

    How full the window is: what the service reported for the last call, and an estimate of what
    came since. What is only known from before it was read again (`known`) counts if it is more than
    the estimate: nobody remembers then how much of it had been shortened.

    Attributes:
        lines: the messages as the transcript holds them.
        shown: the same as a request carries them.
        sizes: about how many tokens each is, as it is shown.
        summary: what stands for those before them.
        estimated: about how many tokens the messages and the summary are.
        folding: what was made of the messages for a request, for the next one.
        is_reported: true while how full it is rests on what the model's service counted.
        version: changes whenever messages already counted change.
    """

    __slots__ = (
        "_count",
        "_reported",
        "_since",
        "estimated",
        "folding",
        "is_reported",
        "lines",
        "shown",
        "sizes",
        "summary",
        "summary_origin",
        "version",
    )

    def __init__(
        self,
        lines: Iterable[HistoryMessage] = (),
        summary: str = "",
        *,
        origin: Whose = "",
        known: int = 0,
        count: Count = tokens.estimate,
    ) -> None:
        """Begin with lines and a summary; `count` weighs texts, `origin` is the summary's."""
        self._count = count
        self.summary_origin: Whose = origin
        self.summary = summary
        self.version = 0
        self.folding = Folding()
        self.lines: list[HistoryMessage] = []
        self.shown: list[Message] = []
        self.sizes: list[int] = []
        self.estimated = count(summary)
        self.is_reported = False
        self._reported = 0
        self._since = 0
        self.extend(lines)
        self._reported, self._since = known, 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of a request, the first one with the summary before it."""
        if not self.summary or not self.shown:
            return tuple(self.shown)
        quoted = "\n".join(f"> {line}".rstrip() for line in self.summary.splitlines())
        note = Text(_SUMMARY.format(quoted=quoted), note=True, origin=self.summary_origin)
        first, *rest = self.shown
        return (Message(first.role, (note, *first.blocks)), *rest)

    def used(self, fixed: int, factor: float) -> int:
        """The tokens that the next request begins with.

        `fixed` is the estimate of what stands before the messages, `factor` what this model's own
        counts come to for one estimated token.
        """
        counted = self._reported + round(self._since * factor)
        estimated = round((fixed + self.estimated) * factor)
        if not tokens.is_plausible(counted, estimated):  # stored before it was looked at
            return estimated
        if self.is_reported:
            return counted
        return max(counted if self._reported else 0, estimated)

    def extend(self, lines: Iterable[HistoryMessage], reported: int = 0) -> None:
        """Add what a turn said; `reported` is what its last call put into the window, or 0."""
        for line in lines:
            size = size_of(line.message, self._count)
            self.lines.append(line)
            self.shown.append(line.message)
            self.sizes.append(size)
            self.estimated += size
            self._since += size
        if reported:
            self.is_reported, self._reported, self._since = True, reported, 0

    def shorten(self, replacements: Mapping[int, Message]) -> None:
        """Show messages in fewer words from now on, by their index."""
        for index, message in replacements.items():
            size = size_of(message, self._count)
            self.estimated += size - self.sizes[index]
            self.sizes[index] = size
            self.shown[index] = message
        if replacements:
            self._changed()

    def compact(self, summary: str, first_kept: str, origin: Whose = "") -> bool:
        """Let a summary stand for what was said before an entry; False when that is not here."""
        cut = next((n for n, line in enumerate(self.lines) if line.entry == first_kept), None)
        if cut is None:
            return False
        self.estimated += self._count(summary) - self._count(self.summary)
        self.estimated -= sum(self.sizes[:cut])
        self.summary, self.summary_origin = summary, origin
        del self.lines[:cut], self.shown[:cut], self.sizes[:cut]
        self._changed()
        return True

    def _changed(self) -> None:
        """Drop the reported count; until the next report the estimate counts."""
        self.version += 1
        self.is_reported, self._reported, self._since = False, 0, 0


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """The name of the tool of each call, by the call's id."""
    blocks = (block for message in messages for block in message.blocks)
    return {block.id: block.name for block in blocks if isinstance(block, ToolUse)}


def size_of(message: Message, count: Count = tokens.estimate) -> int:
    """About how many tokens a message is, notes beside it included."""
    size = 0
    for block in message.blocks:
        match block:
            case Text(text) | ToolResult(_, text):
                size += count(text)
            case ToolUse(_, name, arguments):
                size += count(f"{name} {arguments}")
            case Picture():
                size += PICTURE_TOKENS
            case Opaque():
                size += count(block.weighed)
    return size


# Shortening old tool results in a request; the transcript keeps them whole. Pure.
#
# Two steps, by how much of the window the messages take. From `SOFT_RATIO` on, long results keep
# their head and tail; when that leaves `HARD_RATIO` or more, and there is much to gain, the
# oldest ones are emptied until it is less. Never touched: what stands before the first thing a
# person said, the latest replies and all after them, and messages with something in them that is
# not text.
#
# A request that differs from the one before it misses the service's prompt cache. So pruning
# begins when that is cold, and what was pruned is best sent that way until the next compaction.

Pruned = dict[int, Message]
"""The replacements for messages of a request, by their places."""

SOFT_RATIO = (3, 10)  # of the window: 0.3
HARD_RATIO = (1, 2)

# Characters of an alphabetic script; one of Chinese weighs four (`tokens.weight`).
LONG = 4_000  # a result of more is long
HEAD, TAIL = 1_500, 1_500  # what stays of it
WORTH_CLEARING = 50_000  # all results that could be emptied, together

CLEARED = "[An old result stood here; it was left out to make room.]"

_MINUTE = 60_000  # milliseconds


@dataclass(slots=True)
class _Result:
    """A result that may be shortened: where it stands, and what would stand there."""

    message: int
    block: int
    before: ToolResult
    text: str


def can_begin(message: Message) -> bool:
    """True when a person speaks here and no tool's answer is in it: a history can begin so."""
    answers = any(isinstance(block, ToolResult) for block in message.blocks)
    return message.begins_turn and not answers


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """The index at which each turn begins; a person's messages in a row are one turn.

    It goes on to the end of its answer, with all tools that were called for it.
    """
    begins = [can_begin(message) for message in messages]
    return [n for n, here in enumerate(begins) if here and not (n and begins[n - 1])]


def pruning_is_due(used: int, full: int, *, idle_ms: int, ttl_minutes: float) -> bool:
    """True when old results may be shortened in a request of `used` tokens.

    The model was not called for so long that its service's prompt cache is cold, or there is no
    room for them: it holds more than `full`.
    """
    return used > full or idle_ms >= ttl_minutes * _MINUTE


def prune_results(
    messages: Sequence[Message], sizes: Sequence[int], *, window: int, config: PruningConfig
) -> Pruned:
    """The messages to replace in a request, by their place.

    Args:
        messages: what the request would carry.
        sizes: about how many tokens each of them is.
        window: in tokens.
        config: what may be shortened.
    """
    total = sum(sizes)
    if not config.enabled or _below(total, window, SOFT_RATIO):
        return {}
    names = tool_names(messages)
    results = [
        result
        for result in _prunable(messages, config.keep_turns)
        if _allowed(names.get(result.before.tool_use_id, ""), config)
    ]
    for result in results:
        total -= _shorten(result, _trimmed(result.before))
    if not _below(total, window, HARD_RATIO) and (
        sum(tokens.weight(result.text) for result in results) >= WORTH_CLEARING
    ):
        for result in results:
            if _below(total, window, HARD_RATIO):
                break
            total -= _shorten(result, "\n".join((CLEARED, *_reference(result.before))))
    return _replaced(messages, results)


def _below(total: int, window: int, ratio: tuple[int, int]) -> bool:
    numerator, denominator = ratio
    return total * denominator < window * numerator


def _prunable(messages: Sequence[Message], keep_turns: int) -> Iterator[_Result]:
    turns = turn_starts(messages)
    if len(turns) <= keep_turns:
        return
    said = (index for index, each in enumerate(messages) if each.role == "user" and each.text)
    start = next(said, len(messages))
    for index in range(start, turns[-keep_turns]):
        blocks = messages[index].blocks
        if any(isinstance(block, (Opaque, Picture)) for block in blocks):
            continue
        for place, block in enumerate(blocks):
            if isinstance(block, ToolResult):
                yield _Result(index, place, block, block.text)


def _allowed(name: str, config: PruningConfig) -> bool:
    """True when results of a tool may be shortened; those of no known tool may not."""
    folded = name.lower()
    return (
        bool(name)
        and any(fnmatchcase(folded, pattern.lower()) for pattern in config.allow)
        and not any(fnmatchcase(folded, pattern.lower()) for pattern in config.deny)
    )


def _shorten(result: _Result, text: str) -> int:
    """Give a result this text if it is shorter; how many tokens that saves."""
    saved = tokens.estimate(result.text) - tokens.estimate(text)
    if saved <= 0:
        return 0
    result.text = text
    return saved


def _trimmed(result: ToolResult) -> str:
    text = result.text
    if len(text) * tokens.CHARACTERS_PER_TOKEN <= LONG or tokens.weight(text) <= LONG:
        return text
    head = text[: _reach(text, HEAD)]
    tail = text[len(text) - _reach(text[: -TAIL - 1 : -1], TAIL) :]
    note = f"[Only the beginning and the end of {len(text)} characters are shown.]"
    is_named = result.kept in head or result.kept in tail
    return "\n".join((head, "...", tail, note, *(() if is_named else _reference(result))))


def _reach(text: str, most: int) -> int:
    """The number of leading characters that weigh at most so much."""
    text = text[:most]
    if tokens.weight(text) <= most:
        return len(text)
    lengths = range(len(text) + 1)
    return bisect_right(lengths, most, key=lambda length: tokens.weight(text[:length])) - 1


def _reference(result: ToolResult) -> tuple[str, ...]:
    """A hint how to read all of a result that was cut before."""
    return (f'[artifact_get {{"id": "{result.kept}"}} shows all of it.]',) if result.kept else ()


def _replaced(messages: Sequence[Message], results: Sequence[_Result]) -> Pruned:
    pruned: Pruned = {}
    for result in results:
        if result.text != result.before.text:
            message = pruned.get(result.message, messages[result.message])
            blocks = list(message.blocks)
            blocks[result.block] = replace(result.before, text=result.text)
            pruned[result.message] = replace(message, blocks=tuple(blocks))
    return pruned


# --- as JSON blocks, as transcripts keep them -----------------------------------------------------


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
    """The origins of the words in an entry, a summary's too."""
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
