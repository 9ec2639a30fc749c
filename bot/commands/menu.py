"""The commands as people see them: in menus, in completion and in `/help`."""

from __future__ import annotations

from collections.abc import Sequence

from bot.channel import Command
from bot.i18n import LANGUAGES, language_of, text

# In the order of menus; each has i18n keys `command.<name>.description` and `.usage`.
NAMES = (
    "new",
    "reset",
    "undo",
    "stop",
    "status",
    "context",
    "compact",
    "usage",
    "notices",
    "remind",
    "task",
    "reminders",
    "timezone",
    "memory",
    "whosees",
    "model",
    "think",
    "tools",
    "activation",
    "link",
    "unlink",
    "web",
    "whoami",
    "help",
)
# "start" is what Telegram sends first; the others are what the buttons of a question give.
KNOWN = frozenset((*NAMES, "start", "allow", "deny"))


def menus() -> dict[str, Sequence[Command]]:
    """The menu in every language; in English for whoever speaks another one."""
    return {"": menu("en"), **{language: menu(language) for language in LANGUAGES}}


def menu(locale: str) -> tuple[Command, ...]:
    """Every command, described in the person's language."""
    language = language_of(locale)
    return tuple(
        Command(
            name,
            text(language, f"command.{name}.description"),
            text(language, f"command.{name}.usage"),
        )
        for name in NAMES
    )
