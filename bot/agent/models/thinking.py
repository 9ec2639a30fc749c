"""What a model thinks aloud before its reply, told apart from the reply. Pure."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


class ThinkingFilter:
    """Takes a reply in pieces and gives it without the <think> … </think> it begins with.

    Only there: a reply may well speak of such a tag. What was between is its `thought`.
    """

    __slots__ = ("_held", "_state", "_thought")

    def __init__(self) -> None:
        self._held = ""
        self._thought = ""
        self._state = "before"  # before, thinking, after (the blank lines behind it), said

    def feed(self, piece: str) -> str:
        """What of it can be shown now."""
        if self._state == "said":
            return piece
        self._held += piece
        if self._state == "before":
            begun = self._held.lstrip()
            if len(begun) < len(OPEN) and OPEN.startswith(begun):
                return ""
            if not begun.startswith(OPEN):
                return self._rest()
            self._held, self._state = begun[len(OPEN) :], "thinking"
        if self._state == "thinking":
            thought, found, after = self._held.partition(CLOSE)
            if not found:
                kept = len(CLOSE) - 1  # they may be the tag's beginning
                self._thought += self._held[:-kept]
                self._held = self._held[-kept:]
                return ""
            self._thought += thought
            self._held, self._state = after, "after"
        self._held = self._held.lstrip()
        return self._rest() if self._held else ""

    def thought(self) -> str:
        """What was thought since this was asked last."""
        thought, self._thought = self._thought, ""
        return thought

    def end(self) -> str:
        """What was held back and turned out to be the reply."""
        return self._rest() if self._state == "before" else ""

    def _rest(self) -> str:
        words, self._held, self._state = self._held, "", "said"
        return words
