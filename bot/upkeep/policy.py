"""What is due for a conversation, from how full it is and what was done for it before. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.context import budget
from bot.context.budget import Budget

GROWTH = 1.05  # how much fuller a conversation gets before a compaction that failed is tried again

Wish = Literal["auto", "on", "off"]
"""What the configuration says of notices; "auto" means in direct chats."""

Chosen = Literal["", "on", "off", "later"]
"""What a person said about notices in a conversation; "later" is "off" for this one only."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration asks for: saving memory, and the levels to tell of, in percent."""

    saves: bool
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A conversation, as far as its upkeep goes.

    A cycle is what lies between two compactions; in each, memory is saved and a level told once.

    Attributes:
        used: tokens its window holds.
        shares: how that window is shared out.
        is_flushed: memory was saved in this cycle.
        is_held: this cycle's compaction was taken back.
        is_over: another conversation was begun after it.
        is_told: its person wants to be told how full it is.
        told: the highest level told in this cycle, in percent.
        failed_at: how many tokens it had when its compaction failed; 0 when none did.
    """

    used: int
    shares: Budget
    is_flushed: bool = False
    is_held: bool = False
    is_over: bool = False
    is_told: bool = True
    told: int = 0
    failed_at: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done: save memory, and then summarise the older part; and the level to tell.

    What is made room in needs no notice: the receipt tells of it.
    """

    flush: bool = False
    compaction: bool = False
    notice: int | None = None


def due(state: State, rules: Rules) -> Due:
    """What is due now. Of a conversation that is over, only memory is still to be saved."""
    if state.is_over:
        return Due(flush=rules.saves)
    percent = budget.percent_full(state.used, state.shares)
    return Due(
        flush=budget.should_flush(
            state.used, state.shares, flushed_in_cycle=state.is_flushed, enabled=rules.saves
        ),
        compaction=should_compact(state),
        notice=level(percent, state.told, rules.levels) if state.is_told else None,
    )


def should_compact(state: State) -> bool:
    """True when it is full, and not only as full as when the last compaction failed."""
    is_full = budget.should_compact(state.used, state.shares, held=state.is_held)
    return is_full and state.used > state.failed_at * GROWTH


def should_prune(used: int, shares: Budget, *, is_cold: bool) -> bool:
    """True when old tool results may be shortened in a request of so many tokens.

    That breaks no warm prompt cache (`is_cold`), or there is no room for them.
    """
    return is_cold or used > shares.compact_above


def level(percent: int, told: int, levels: Iterable[int]) -> int | None:
    """The level to tell of now, or None; `told` is the highest one told in this cycle.

    A conversation that jumps over a level is only told of the higher one.
    """
    reached = max((each for each in levels if 0 < each <= percent), default=0)
    return reached if reached > told else None


def wanted(wish: Wish, chosen: Chosen, chat_type: str) -> bool:
    """True when a conversation is to be told at all: what its person chose comes first."""
    if chosen:
        return chosen == "on"
    return wish == "on" or (wish == "auto" and chat_type == "direct")
