"""What is stored at once, and what of a chat's messages belongs together: pure."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.telegram.inbound import Moved, Press
from adapters.telegram.joining import Part, goes_on, patience, whole
from adapters.telegram.pace import Pace
from bot.channel import Inbound


@dataclass(slots=True)
class Bundle:
    """A message with all its parts, a press, or a chat's new id; times are of any clock, in s."""

    numbers: list[int]  # of its updates
    parts: list[Part]
    began: float  # when the first part came …
    grew: float  # … and the last one
    press: Press | None = None
    moved: Moved | None = None
    is_closed: bool = False  # nothing can follow any more

    @property
    def chat(self) -> str:
        """Where it belongs; within a chat the order counts."""
        return self.moved.chat if self.moved else self.parts[0].inbound.chat

    @property
    def message(self) -> Inbound:
        """All its parts as one message, in the order they were written."""
        pairs = sorted(zip(self.numbers, self.parts, strict=True), key=lambda pair: pair[0])
        return whole([part for _, part in pairs])

    def waits(self, now: float, pace: Pace) -> float:
        """How long something may follow, in seconds; 0 or less when it is whole."""
        if self.is_closed or not self.parts:
            return 0.0
        longest = patience(self.parts, pace)
        return min(self.grew + longest, self.began + pace.together) - now if longest else 0.0


def put(lane: list[Bundle], bundle: Bundle) -> None:
    """Add a message to its chat's, or to the parts of the message it goes on."""
    if bundle.parts:
        who = bundle.parts[0].inbound
        before = next((b for b in reversed(lane) if _is_of(b, who)), None)
        if before is not None and not before.is_closed:
            if bundle.press is None and goes_on(before.parts, bundle.parts[0]):
                before.numbers += bundle.numbers
                before.parts += bundle.parts
                before.grew = bundle.grew
                return
            before.is_closed = True
    lane.append(bundle)


def _is_of(bundle: Bundle, who: Inbound) -> bool:
    """Whether the same person said it in the same place."""
    if not bundle.parts:
        return False
    other = bundle.parts[0].inbound
    return (other.thread, other.sender) == (who.thread, who.sender)
