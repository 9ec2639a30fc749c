"""The messages a model sees of a conversation, and how many tokens they are.

The transcript keeps everything; what is summarised or shortened here is only what the model sees.
Nothing is counted twice: each message is weighed once, when it is added or shortened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bot.config import PruningConfig
from bot.context import budget
from bot.context.budget import Count, Folding
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse, Whose

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
        count: Count = budget.estimate,
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
        if not budget.is_plausible(counted, estimated):  # stored before it was looked at
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


def size_of(message: Message, count: Count = budget.estimate) -> int:
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
        sum(budget.weight(result.text) for result in results) >= WORTH_CLEARING
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
    saved = budget.estimate(result.text) - budget.estimate(text)
    if saved <= 0:
        return 0
    result.text = text
    return saved


def _trimmed(result: ToolResult) -> str:
    text = result.text
    if len(text) * budget.CHARACTERS_PER_TOKEN <= LONG or budget.weight(text) <= LONG:
        return text
    head = text[: _reach(text, HEAD)]
    tail = text[len(text) - _reach(text[: -TAIL - 1 : -1], TAIL) :]
    note = f"[Only the beginning and the end of {len(text)} characters are shown.]"
    is_named = result.kept in head or result.kept in tail
    return "\n".join((head, "...", tail, note, *(() if is_named else _reference(result))))


def _reach(text: str, most: int) -> int:
    """The number of leading characters that weigh at most so much."""
    text = text[:most]
    if budget.weight(text) <= most:
        return len(text)
    lengths = range(len(text) + 1)
    return bisect_right(lengths, most, key=lambda length: budget.weight(text[:length])) - 1


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
