"""What is due for a conversation, from how full it is and what was done for it before. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.config import ContextConfig
from bot.context.budget import Budget, percent_full
from bot.identity import Conversation
from bot.sessions.store import Session

GROWTH = 1.05  # how much fuller a conversation gets before a compaction that failed is tried again

Chosen = Literal["", "on", "off", "later"]
"""What a person said about notices in a conversation; "later" is "off" for this one only."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done: save memory, and then summarise the older part; and the level to tell.

    What is made room in needs no notice: the receipt tells of it.
    """

    flush: bool = False
    compaction: bool = False
    notice: int | None = None


def due(
    session: Session,
    used: int,
    shares: Budget,
    config: ContextConfig,
    *,
    is_told: bool,
    failed_at: int = 0,
) -> Due:
    """Decide what is due when the window of a session holds `used` tokens.

    Memory is saved once in each cycle, from `flush_from` on. Room is made above `compact_above`;
    when this cycle's compaction was taken back, only above what can still be sent; and after one
    that failed with `failed_at` tokens, only when it is fuller by a twentieth. Of the levels the
    highest that is reached is told, once. Of a session that is over, only memory is still to be
    saved.
    """
    saves = config.enable_memory_flush
    if session.ended_by:
        return Due(flush=saves)
    full = shares.hard if session.held else shares.compact_above
    percent = percent_full(used, shares)
    level = max((each for each in config.notice_percent if 0 < each <= percent), default=0)
    return Due(
        flush=saves and not session.is_flushed and used >= shares.flush_from > 0,
        compaction=used > full and used > failed_at * GROWTH,
        notice=level if is_told and level > session.told else None,
    )


def is_told(conversation: Conversation, chosen: Chosen = "") -> bool:
    """True when people are told there how full it gets.

    What was `chosen` in the session comes first, then the channel's settings, then the
    configuration's; "auto" means in direct chats.
    """
    if chosen:
        return chosen == "on"
    config = conversation.config.context
    wish = conversation.settings.notices or config.notices
    return wish == "on" or (wish == "auto" and conversation.is_direct)
