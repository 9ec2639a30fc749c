"""How large the window is and how it is shared out. Pure.

This is the one place that says so; what is due at which share, `bot.upkeep.policy` says.

The figures are those of a window of 200 000 tokens (20 000 kept free, memories saved 4 000 before
that); small windows scale them down, so that 16 000 tokens converse instead of compacting with
every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bot.config import ContextConfig

DEFAULT_WINDOW = 200_000  # tokens, when neither the service nor the configuration knows
SMALL = 32_000  # a window of less is worth a warning
NARROW = 16_000  # a window of less has a short prompt
TOO_SMALL = 4_000  # a window of less is refused

# The most that each may take of a window.
RESERVE_PART = 4  # a quarter
OUTPUT_PART = 4
NARROW_OUTPUT_PART = 8  # so that a narrow one is summarised beside a reply, and not before it
KEEP_RECENT_PART = 6
SOFT_PART = 15  # of what is left beside the reserve: a twentieth of a small window
HELD_PART = 2  # of the reserve, for replies while a compaction is taken back: the rest is room


@dataclass(frozen=True, slots=True)
class Window:
    """How many tokens of a model's window are used: `tokens`, of the `reported` ones.

    `source` says who reported them; `capped` that the configuration lets less of them be used.
    """

    tokens: int
    reported: int
    source: Literal["service", "config", "default"]
    capped: bool

    @property
    def is_small(self) -> bool:
        """True when conversations will be short in it."""
        return self.tokens < SMALL

    @property
    def wants_short(self) -> bool:
        """True when the usual beginning of a prompt would leave little room in it."""
        return self.tokens < NARROW

    @property
    def is_too_small(self) -> bool:
        """True when it is too small to converse in."""
        return self.tokens < TOO_SMALL


@dataclass(frozen=True, slots=True)
class Budget:
    """A window shared out, in tokens; `flush_from <= compact_above <= hard <= window`.

    Attributes:
        window: all of it.
        output: the longest reply to ask for.
        reserve: what is kept free for the reply and what comes with it.
        compact_above: with more than this a conversation is full.
        flush_from: with this or more, memories are saved; 0 when that is never.
        keep_recent: how much of the latest messages a compaction leaves whole.
        hard: with more than this no request can be sent that leaves room for its reply.
    """

    window: int
    output: int
    reserve: int
    compact_above: int
    flush_from: int
    keep_recent: int
    hard: int


def resolve(
    reported: int,
    config: ContextConfig,
    model: str,
    *,
    configured: int = 0,
    assumed: int = DEFAULT_WINDOW,
) -> Window:
    """The window of a model whose service reported so many tokens; 0 when it did not.

    What the operator says of a model, or `configured` for all of its service, counts more: a server
    between may report anything. Where nobody says anything, it is `assumed`.
    """
    source: Literal["service", "config", "default"]
    said = config.windows.get(model, 0) or config.windows.get(model.partition("/")[2], 0)
    if (told := max(0, said) or configured) > 0:
        window, source = told, "config"
    elif reported > 0:
        window, source = reported, "service"
    else:
        window, source = assumed, "default"
    used = min(window, config.context_tokens)
    return Window(used, window, source, capped=used < window)


def budget(window: int, config: ContextConfig, max_output: int) -> Budget:
    """The shares of a window of so many tokens, for replies of at most `max_output`."""
    output = min(max_output, window // (OUTPUT_PART if window >= NARROW else NARROW_OUTPUT_PART))
    # A reply longer than the reserve needs its room all the same: what is full can still be sent.
    reserve = max(output, min(config.compaction.reserve_tokens, window // RESERVE_PART))
    full = window - reserve
    return Budget(
        window=window,
        output=output,
        reserve=reserve,
        compact_above=full,
        flush_from=full - min(config.memory_flush_soft_tokens, full // SOFT_PART),
        keep_recent=min(config.compaction.keep_recent_tokens, window // KEEP_RECENT_PART),
        hard=window - output,
    )


def after_undo(shares: Budget) -> Budget:
    """The shares of a conversation whose compaction was taken back: replies may be less long.

    In a small window they may take all of the reserve otherwise, and what is full could not go on
    for a single message. Half of the reserve is room to do so at least.
    """
    output = min(shares.output, max(1, shares.reserve // HELD_PART))
    return replace(shares, output=output, hard=shares.window - output)


def percent_full(used: int, shares: Budget) -> int:
    """How full a conversation is, rounded down and never more than 100."""
    if shares.compact_above <= 0:
        return 100
    return min(100, max(0, used) * 100 // shares.compact_above)
