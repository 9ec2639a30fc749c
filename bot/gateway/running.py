"""The turns that are running now, by session key."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from bot.agent.turn import Turn


class RunningTurns:
    """Lets `/stop` reach the turn of a lane."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._turns

    def __len__(self) -> int:
        return len(self._turns)

    @contextmanager
    def running(self, key: str, turn: Turn) -> Generator[None]:
        """The turn can be stopped for the length of a `with`."""
        self._turns[key] = turn
        try:
            yield
        finally:
            del self._turns[key]

    def stop(self, key: str) -> bool:
        """Stop the turn of a key; False when none runs."""
        turn = self._turns.get(key)
        if turn is None:
            return False
        turn.stop()
        return True
