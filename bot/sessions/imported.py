"""Conversations that took place with another program: how they are told from those held here. Pure.

Their session has the channel "import:<source>", which no channel can be called, and `started_by`
"import"; what is said in them is marked as `imported`, so it counts neither as this bot's memory
nor as words that were said to it.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from bot.messages import Whose

Source = Literal["chatgpt", "claude", "openclaw"]

NAMES: Final[dict[Source, str]] = {
    "chatgpt": "ChatGPT",
    "claude": "Claude",
    "openclaw": "OpenClaw",
}
ORIGIN: Final[Whose] = "imported"
ID: Final = "import-"  # what their sessions' ids begin with
_PREFIX = "import:"


def channel_of(source: Source) -> str:
    """What the sessions that come from a program have as their channel."""
    return f"{_PREFIX}{source}"


def is_of(id_: str) -> bool:
    """True for the id of such a session, or of an entry of it."""
    return id_.startswith(ID)


def name_of(channel: str) -> str:
    """The program a session comes from, in words; empty for one that was held here."""
    source = channel.removeprefix(_PREFIX)
    if source == channel:
        return ""
    return next((NAMES[each] for each in get_args(Source) if each == source), source)
