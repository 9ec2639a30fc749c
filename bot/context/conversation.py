"""A conversation as the next request will carry it: its messages, and how long they are.

The transcript keeps everything; what is summarised or shortened here is only what the model sees.
Nothing is counted twice: each message is weighed once, when it is added or shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.context import tokens
from bot.context.tokens import Count
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse, Whose

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


class Conversation:
    """The messages a model sees, oldest first, after the summary of those before them.

    `used` is how full the window is: what the service reported for the last call, and an estimate
    of what came since. What is only known from before it was read again (`known`) counts if it is
    more than the estimate: nobody remembers then how much of it had been shortened. `version`
    changes whenever messages already counted change.
    """

    __slots__ = (
        "_count",
        "_lines",
        "_measured",
        "_origins",
        "_reported",
        "_shown",
        "_since",
        "_sizes",
        "_total",
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
        self._origins = frozenset[Whose]({origin})
        self.summary = summary
        self.version = 0
        self._lines: list[Line] = []
        self._shown: list[Message] = []
        self._sizes: list[int] = []
        self._total = count(summary)
        self._measured = False
        self._reported = 0
        self._since = 0
        self.extend(lines)
        self._reported, self._since = known, 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> Sequence[Line]:
        """Its messages as the transcript holds them."""
        return self._lines

    @property
    def shown(self) -> Sequence[Message]:
        """Its messages as a request carries them, without the summary."""
        return self._shown

    @property
    def sizes(self) -> Sequence[int]:
        """About how many tokens each message is, as it is shown."""
        return self._sizes

    @property
    def messages(self) -> tuple[Message, ...]:
        """What a request carries."""
        if not self.summary or not self._shown:
            return tuple(self._shown)
        return (self.opening(self._shown[0]), *self._shown[1:])

    def opening(self, message: Message) -> Message:
        """A conversation's first message with the summary of what was said before."""
        if not self.summary:
            return message
        quoted = "\n".join(f"> {line}".rstrip() for line in self.summary.splitlines())
        note = Text(_SUMMARY.format(quoted=quoted), note=True, origin=self.summary_origin)
        return Message(message.role, (note, *message.blocks))

    @property
    def origins(self) -> frozenset[Whose]:
        """Whose words the model is shown, the summary's among them."""
        return self._origins

    @property
    def is_reported(self) -> bool:
        """Whether how full it is rests on what the model's service counted."""
        return self._measured

    @property
    def estimated(self) -> int:
        """About how many tokens the messages and the summary are."""
        return self._total

    def used(self, fixed: int, factor: float) -> int:
        """How many tokens the next request begins with.

        `fixed` is the estimate of what stands before the messages, `factor` what this model's own
        counts come to for one estimated token.
        """
        counted = self._reported + round(self._since * factor)
        if self._measured:
            return counted
        return max(counted if self._reported else 0, round((fixed + self._total) * factor))

    def extend(self, lines: Iterable[Line], reported: int = 0) -> None:
        """Add what a turn said; `reported` is what its last call put into the window, or 0."""
        for line in lines:
            size = size_of(line.message, self._count)
            self._lines.append(line)
            self._shown.append(line.message)
            self._sizes.append(size)
            self._total += size
            self._since += size
            self._origins |= line.message.origins
        if reported:
            self._measured, self._reported, self._since = True, reported, 0

    def shorten(self, replacements: Mapping[int, Message]) -> None:
        """Show messages in fewer words from now on, by their index."""
        for index, message in replacements.items():
            size = size_of(message, self._count)
            self._total += size - self._sizes[index]
            self._sizes[index] = size
            self._shown[index] = message
        if replacements:
            self._changed()

    def compact(self, summary: str, first_kept: str, origin: Whose = "") -> bool:
        """Let a summary stand for what was said before an entry; False when that is not here."""
        cut = next((n for n, line in enumerate(self._lines) if line.entry == first_kept), None)
        if cut is None:
            return False
        self._total += self._count(summary) - self._count(self.summary)
        self._total -= sum(self._sizes[:cut])
        self.summary, self.summary_origin = summary, origin
        del self._lines[:cut], self._shown[:cut], self._sizes[:cut]
        self._origins = frozenset[Whose]({origin}).union(
            *(line.message.origins for line in self._lines)
        )
        self._changed()
        return True

    def _changed(self) -> None:
        """What was reported no longer holds; until the next report the estimate does."""
        self.version += 1
        self._measured, self._reported, self._since = False, 0, 0


def size_of(message: Message, count: Count = tokens.estimate) -> int:
    """About how many tokens a message is, notes beside it included."""
    return sum(_size(block, count) for block in message.blocks)


def _size(block: Block, count: Count) -> int:
    if isinstance(block, Picture):
        return PICTURE_TOKENS
    return count(_words(block))


def _words(block: Text | ToolUse | ToolResult | Opaque) -> str:
    match block:
        case Text(text) | ToolResult(_, text):
            return text
        case ToolUse(_, name, arguments):
            return f"{name} {arguments}"
        case Opaque(data):
            return str(data)
