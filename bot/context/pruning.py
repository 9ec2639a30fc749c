"""Shortening old tool results in a request; the transcript keeps them whole. Pure.

Two steps, by how much of the window the messages take. From `SOFT_RATIO` on, long results keep
their head and tail; when that leaves `HARD_RATIO` or more, and there is much to gain, the oldest
ones are emptied until it is less. Never touched: what stands before the first thing a person said,
the latest replies and all after them, and messages with something in them that is not text.

A request that differs from the one before it misses the service's prompt cache. So pruning begins
when that is cold, and what was pruned is best sent that way until the next compaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bot.config import PruningConfig
from bot.context import tokens
from bot.context.history import tool_names
from bot.messages import Message, Opaque, Picture, ToolResult

Pruned = dict[int, Message]
"""What stands in a request instead of the messages at these places."""

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


def is_due(used: int, full: int, *, idle_ms: int, ttl_minutes: float) -> bool:
    """True when old results may be shortened in a request of `used` tokens.

    The model was not called for so long that its service's prompt cache is cold, or there is no
    room for them: it holds more than `full`.
    """
    return used > full or idle_ms >= ttl_minutes * _MINUTE


def prune(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    window: int,
    config: PruningConfig,
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
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if len(replies) < keep_turns:
        return
    said = (index for index, each in enumerate(messages) if each.role == "user" and each.text)
    start = next(said, len(messages))
    for index in range(start, replies[-keep_turns]):
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
    """How many of the first characters weigh at most so much."""
    text = text[:most]
    if tokens.weight(text) <= most:
        return len(text)
    lengths = range(len(text) + 1)
    return bisect_right(lengths, most, key=lambda length: tokens.weight(text[:length])) - 1


def _reference(result: ToolResult) -> tuple[str, ...]:
    """Where all of a result is to be read that was cut before; it stays readable in any case."""
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
