"""How long to wait between tries and between messages."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from cachetools import LRUCache

from bot.channel.kit.reassembly import Patience

MOST_A_MINUTE = 20  # messages in one group; Telegram refuses more
MINUTE = 60.0  # seconds
REMEMBERED = 1024  # groups that were written to a moment ago


@dataclass(frozen=True, slots=True)
class Pace(Patience):
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    rejected: float = 60.0  # after a rejected token, which only a person can mend
    probe: int = 1  # the long poll after a failure, to know soon whether it is over
    look: float = 0.15  # between two looks for further parts
    draft_first: float = 1.0  # before a reply shows while it is being written
    draft: float = 1.0  # between two changes of it


class Allowance:
    """How often groups may be written to, so that Telegram never has to refuse."""

    def __init__(self, most: int = MOST_A_MINUTE, period: float = MINUTE) -> None:
        self._most = most
        self._period = period
        self._spent: LRUCache[str, deque[float]] = LRUCache(REMEMBERED)

    def wait(self, chat: str, spare: int = 0) -> float:
        """Seconds until this chat may be written to, with `spare` messages left after that."""
        spent = self._spent.get(chat)
        if spent is None:
            return 0.0
        now = time.monotonic()
        while spent and now - spent[0] >= self._period:
            spent.popleft()
        over = len(spent) + spare + 1 - self._most
        return max(0.0, spent[over - 1] + self._period - now) if over > 0 else 0.0

    def spend(self, chat: str) -> None:
        """Note that something was written there; direct chats have no such limit."""
        if not chat.startswith("-"):
            return
        self._spent.setdefault(chat, deque(maxlen=self._most)).append(time.monotonic())
