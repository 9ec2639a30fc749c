"""A conversation as the next request will carry it: its messages, and about how long they are.

The transcript keeps everything; what is dropped here is only what the model sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from bot.context import tokens

KEEP = 0.6  # of the budget, after messages were dropped: rarely cutting keeps prompt caches warm


class Sized(Protocol):
    """A message: what is needed to weigh it."""

    @property
    def role(self) -> str:
        """Who speaks."""
        ...

    @property
    def text(self) -> str:
        """The words a person wrote or read."""
        ...

    @property
    def blocks(self) -> Sequence[object]:
        """Everything in it."""
        ...


M = TypeVar("M", bound=Sized)


class Conversation(Generic[M]):
    """The messages a model sees, oldest first, within a budget of estimated tokens."""

    __slots__ = ("_messages", "_sizes", "_total")

    def __init__(self, messages: Iterable[M] = ()) -> None:
        self._messages: list[M] = []
        self._sizes: list[int] = []
        self._total = 0
        self.extend(messages)

    @property
    def messages(self) -> tuple[M, ...]:
        """What a request carries."""
        return tuple(self._messages)

    @property
    def tokens(self) -> int:
        """About how many tokens the messages are."""
        return self._total

    def extend(self, messages: Iterable[M]) -> None:
        """Add what a turn said."""
        for message in messages:
            size = sum(tokens.estimate(str(block)) for block in message.blocks)
            self._messages.append(message)
            self._sizes.append(size)
            self._total += size

    def fit(self, budget: int) -> int:
        """Drop the oldest turns when the messages exceed `budget` tokens; how many were dropped.

        What stays begins with something a person said, so no tool result loses its call. The
        newest turn always stays.
        """
        if self._total <= budget:
            return 0
        cut, total = 0, self._total
        last_turn = max((i for i in range(len(self._messages)) if self._begins(i)), default=0)
        while cut < last_turn and total > budget * KEEP:
            total -= self._sizes[cut]
            cut += 1
            while cut < last_turn and not self._begins(cut):
                total -= self._sizes[cut]
                cut += 1
        del self._messages[:cut]
        del self._sizes[:cut]
        self._total = total
        return cut

    def _begins(self, index: int) -> bool:
        message = self._messages[index]
        return message.role == "user" and bool(message.text)
