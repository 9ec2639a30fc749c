"""Adding up what calls of models use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.agent.models import Reply, Usage


class Meter:
    """Adds up what calls use, by model, also of those that end in the middle.

    A service says at the end of a call what it used, some also when it begins. Where one ended
    before that was said, what was sent and written counts as it is weighed here: it is charged.
    """

    def __init__(self) -> None:
        self.used: dict[str, Usage] = {}
        self._asked = ""
        self._told = Usage()

    @property
    def usage(self) -> Usage:
        """All of it together."""
        return sum(self.used.values(), Usage())

    def add(self, used: Mapping[str, Usage]) -> None:
        """Add what was used elsewhere."""
        self.used = added(self.used, used)

    def asks(self, model: str) -> None:
        """A call of this model begins, or, empty, of the same once more."""
        self._asked, self._told = model or self._asked, Usage()

    def hear(self, usage: Usage) -> None:
        """The service says this of the call that runs; the last word counts."""
        self._told = usage

    def replied(self, reply: Reply) -> None:
        """The call came to its end; a reply says itself whose it is, where several could answer."""
        self._told = Usage()
        self.add({reply.model or self._asked: reply.usage})

    def broke_off(self, error: BaseException, *, sent: int, written: int) -> None:
        """The call ended in the middle, after about so many tokens.

        What fails before the first word is not charged; what is stopped before it is.
        """
        told, self._told = self._told, Usage()
        if isinstance(error, Exception) and not written:
            return
        begun = told if told.context_tokens else Usage(input_tokens=sent)
        self.add({self._asked: replace(begun, output_tokens=max(begun.output_tokens, written))})


def added(first: Mapping[str, Usage], second: Mapping[str, Usage]) -> dict[str, Usage]:
    """What each model used in both."""
    models = dict.fromkeys((*first, *second))
    return {each: first.get(each, Usage()) + second.get(each, Usage()) for each in models}
