"""What is made of a conversation's messages again and again, made once of each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bot.messages import Message

V = TypeVar("V")


class Folding:
    """Keeps what was made of a conversation's messages, by name, for when more were added.

    It belongs to one conversation and goes with it. Messages that are the same objects as before
    are compared in no time, so a long conversation costs what was said since.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Message, ...], Any]] = {}

    def of(
        self,
        name: str,
        messages: tuple[Message, ...],
        begin: Callable[[], V],
        add: Callable[[V, Message], V],
    ) -> V:
        """All messages, added one by one to what it begins with; `add` may change that itself.

        Nobody else may.
        """
        # Taken out, so that what fails in the middle is not gone on with.
        known, made = self._kept.pop(name, ((), None))
        if made is None or messages[: len(known)] != known:
            known, made = (), begin()
        for message in messages[len(known) :]:
            made = add(made, message)
        self._kept[name] = messages, made
        return made
