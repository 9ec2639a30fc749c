"""Rooms: what is said to the bot there, what it only overhears, and what is chosen for each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache

from cachetools import LRUCache

from bot.channel import ChannelConfig, Heard, Inbound
from bot.context.prompt import described
from bot.sessions.rooms import Activation, Spot

MAX_SEARCHED = 4_000  # characters of a message in which a mention is looked for
MAX_HEARD = 30  # messages of one room
MAX_CHARS = 8_000  # of them together
MAX_TEXT = 2_000  # characters of one of them
MAX_NAME = 100  # characters of a name
MAX_ROOMS = 2_000  # in which something was overheard
MAX_CHOSEN = 20_000  # rooms with a choice of their own
MAX_WARNED = 10_000  # rooms remembered as told; the database knows the others

# A letter or digit of a script that puts spaces between words.
_WORD = r"[^\W\u2e80-\U0010ffff]"


# --- the mention gate: pure ----------------------------------------------------------------------


def addressed(
    config: ChannelConfig,
    inbound: Inbound,
    activation: Activation,
    agent_name: str,
    *,
    is_command: bool = False,
) -> bool:
    """Whether something said in a room is for the bot; `config` is the room's.

    `is_command` says that it is one of the bot's own commands. What an admin chose for the room
    (`activation`) comes before what the configuration says.
    """
    return is_always(config, activation) or is_command or named(config, inbound, agent_name)


def is_always(config: ChannelConfig, activation: Activation) -> bool:
    """Whether everything said in a room is for the bot."""
    return activation == "always" if activation else not config.require_mention


def named(config: ChannelConfig, inbound: Inbound, agent_name: str) -> bool:
    """Whether a message mentions the bot: natively, as a reply to it, or by a pattern.

    Without patterns of its own, a room listens for "@Name" and for "Name," at the beginning.
    """
    if pointed(inbound):
        return True
    text = inbound.text[:MAX_SEARCHED]
    patterns = config.mention_patterns or _patterns_of(agent_name)
    return any(_compiled(pattern).search(text) for pattern in patterns)


def pointed(inbound: Inbound) -> bool:
    """Whether a message is meant for the bot by the platform's own means."""
    return inbound.mentions_bot or (inbound.reply_to is not None and inbound.reply_to.from_bot)


@lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(100)
def _patterns_of(name: str) -> tuple[str, ...]:
    plain = re.escape(name.strip())
    if not plain:
        return ()
    ends = rf"(?!{_WORD})" if name.strip()[-1] < "\u2e80" else ""
    return (rf"(?<!{_WORD})@{plain}{ends}", rf"\A\s*{plain}\s*(?:[,:;!?，：；！？、]|\Z)")


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


# --- what is known of each -----------------------------------------------------------------------


class RoomBook:
    """What was chosen for rooms, which were told of late, and which have another id now.

    It mirrors the database in memory, because every message asks; what does not fit is as if it
    had not been chosen.
    """

    def __init__(self) -> None:
        self._chosen: LRUCache[str, Activation] = LRUCache(MAX_CHOSEN)
        self._warned: LRUCache[str, int] = LRUCache(MAX_WARNED)
        self._first: dict[Spot, str] = {}
        self._later: dict[Spot, tuple[str, ...]] = {}

    def load(self, chosen: Mapping[str, Activation], moved: Mapping[Spot, str]) -> None:
        """Take up what the database knows; `chosen` newest first."""
        self._chosen.clear()
        self._chosen.update(reversed([*chosen.items()]))
        self._first = dict(moved)
        self._later = {}
        for spot in moved:
            self._note(spot)

    def activation(self, key: str) -> Activation:
        """What was chosen for a room, by its session key."""
        return self._chosen.get(key, "")

    def activated(self, key: str, activation: Activation) -> None:
        """Something was chosen for a room, and is on disk."""
        self._chosen[key] = activation

    def was_warned(self, key: str, now: int, every: int) -> bool:
        """Whether a room is known to have been told within the last `every` ms."""
        at = self._warned.get(key)
        return at is not None and abs(now - at) < every

    def warned(self, key: str, now: int) -> None:
        """A room was told, or asked in vain: no need to ask the database for a while."""
        self._warned[key] = now

    def first(self, spot: Spot) -> str:
        """The id a chat had first: what its conversations and its memory are kept under."""
        return self._first.get(spot, spot[2])

    def ids(self, spot: Spot) -> tuple[str, ...]:
        """Every id that a chat, by its first one, has or had."""
        return (spot[2], *self._later.get(spot, ()))

    def moved(self, spot: Spot, first: str) -> None:
        """A chat is the one that was called `first`."""
        self._first.pop(spot, None)
        if spot[2] != first:
            self._first[spot] = first
            self._note(spot)

    def _note(self, spot: Spot) -> None:
        home = (spot[0], spot[1], self._first[spot])
        self._later[home] = tuple(dict.fromkeys((*self._later.get(home, ()), spot[2])))
