"""The options that count at once when they are changed; all others wait for the next start."""

from __future__ import annotations

from typing import Final

from bot.settings.fields import Key

# Whole tables, and single options where the rest of a table waits.
LIVE: Final[tuple[Key, ...]] = (
    *(
        ("agent", name)
        for name in (
            "model",
            "fallback",
            "chores",
            "choices",
            "name",
            "language",
            "timezone",
            "max_tokens",
            "max_steps",
        )
    ),
    ("models",),
    ("channels",),
    ("limits",),
    ("session", "owner_name"),
    ("session", "reset"),
    ("context", "context_tokens"),
    ("context", "notices"),
    ("context", "notice_percent"),
    ("dashboard", "token"),
)


def is_live(key: Key) -> bool:
    """True when an option counts at once."""
    return any(key[: len(each)] == each for each in LIVE)
