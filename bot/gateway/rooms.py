"""What is said in rooms and not to the bot: kept for a while, for the next message that is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from cachetools import LRUCache

from bot.channel import Heard, Inbound
from bot.context.prompt import described

MAX_HEARD = 30  # messages of one room
MAX_CHARS = 8_000  # of them together
MAX_TEXT = 2_000  # characters of one of them
MAX_NAME = 100  # characters of a name
MAX_ROOMS = 2_000  # in which something was overheard


# --- what is overheard ---------------------------------------------------------------------------


class Overheard:
    """What was said lately in each room, and not to the bot. In memory only, and bounded."""

    def __init__(self) -> None:
        self._rooms: LRUCache[str, deque[tuple[str, Heard]]] = LRUCache(MAX_ROOMS)

    def __len__(self) -> int:
        return len(self._rooms)

    def hear(self, key: str, inbound: Inbound) -> None:
        """Keep what was said in the room of a session key; an edit takes the place of its text."""
        text = _cut(inbound.shown or described(inbound.media), MAX_TEXT)
        name = _cut(inbound.sender_name or inbound.sender, MAX_NAME)
        said = Heard(name, text, inbound.sent_at)
        lines = self._rooms.setdefault(key, deque())
        ids = (inbound.message_id, inbound.edit_of)
        for index, (id_, before) in enumerate(lines):
            if id_ and id_ in ids:  # a second copy, or another text for it
                lines[index] = (id_, Heard(before.sender_name, text, before.at))
                break
        else:
            lines.append((inbound.message_id, said))
        _shorten(lines)

    def take(self, key: str) -> tuple[Heard, ...]:
        """All that was overheard in a room, the oldest first; it is kept no longer."""
        return tuple(said for _, said in self._rooms.pop(key, ()))

    def give_back(self, key: str, heard: Iterable[Heard]) -> None:
        """Keep again what was taken for a message that was not stored."""
        before = deque(("", said) for said in heard)
        if before:
            before.extend(self._rooms.pop(key, ()))
            _shorten(before)
            self._rooms[key] = before


def _shorten(lines: deque[tuple[str, Heard]]) -> None:
    """Let the oldest go until what is left is within the bounds."""
    size = sum(len(said.text) for _, said in lines)
    while len(lines) > MAX_HEARD or size > MAX_CHARS:
        size -= len(lines.popleft()[1].text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
