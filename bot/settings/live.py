"""The options that count at once when they are changed; all others wait for the next start."""

from __future__ import annotations

from typing import Final

from bot.settings.fields import Key

# Whole tables, and single options where the rest of a table waits.
LIVE: Final[tuple[Key, ...]] = (
    ("agent",),
    ("models",),
    ("channels",),
    ("limits",),
    ("session", "owner_name"),
    ("session", "reset"),
    ("session", "queue", "mode"),
    ("session", "queue", "debounce"),
    *(
        ("context", name)
        for name in (
            "context_tokens",
            "windows",
            "enable_memory_flush",
            "memory_flush_soft_tokens",
            "memory_flush_timeout",
            "notices",
            "notice_percent",
            "pruning",
            "compaction",
        )
    ),
    *(
        ("memory", name)
        for name in (
            "max_injected_chars",
            "recall_timeout",
            "citations",
            "flush",
            "aging",
            "night",
            "max_results",
            "min_score",
            "candidate_multiplier",
            "half_life_days",
            "mmr_lambda",
            "search_timeout",
            "retention_days",
        )
    ),
    ("storage", "keep_months"),
    ("dashboard", "token"),
)


# Services, channels and the page have addresses and secrets: each node has its own.
_OWN: Final = frozenset({"models", "channels", "dashboard"})


def is_shared(key: Key) -> bool:
    """True when an option that is changed on one of many nodes counts on all of them."""
    return is_live(key) and key[0] not in _OWN


def is_live(key: Key) -> bool:
    """True when an option counts at once."""
    return any(key[: len(each)] == each for each in LIVE)
