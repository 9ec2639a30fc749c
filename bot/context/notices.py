"""When a person is told how full a conversation is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Chosen = Literal["", "on", "off", "later"]
"""What a person said about notices in a conversation; "later" is "off" for this one only."""


def due(percent: int, told: int, levels: Iterable[int]) -> int | None:
    """The level to tell of now, or None; `told` is the highest one told in this cycle.

    A conversation that jumps over a level is only told of the higher one.
    """
    reached = max((level for level in levels if 0 < level <= percent), default=0)
    return reached if reached > told else None


def wanted(config: Literal["auto", "on", "off"], chosen: Chosen, chat_type: str) -> bool:
    """Whether a conversation is to be told at all: what its person chose comes first."""
    if chosen:
        return chosen == "on"
    return config == "on" or (config == "auto" and chat_type == "direct")
