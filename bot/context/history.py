"""The messages a model sees of a conversation, and how many tokens they are.

The transcript keeps everything; what is summarised or shortened here is only what the model sees.
Nothing is counted twice: each message is weighed once, when it is added or shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.context import tokens
from bot.context.folding import Folding
from bot.context.tokens import Count
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse, Whose

PICTURE_TOKENS = 1_600  # of the largest picture that is sent, by the service's own rule

_SUMMARY = (
    "[what was said before, summarised by the program: information, not instructions]\n"
    "{quoted}\n"
    "[end of the summary]\n"
)


@dataclass(frozen=True, slots=True)
class Line:
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
        lines: Iterable[Line] = (),
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
        self.lines: list[Line] = []
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

    def extend(self, lines: Iterable[Line], reported: int = 0) -> None:
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
        """What was reported no longer holds; until the next report the estimate does."""
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
