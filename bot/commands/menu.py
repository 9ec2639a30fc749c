"""Every command: what runs it, and how people see it in menus, completion and `/help`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bot.channel import Command
from bot.commands import conversation, info, link, memory, remind
from bot.commands.base import COMMANDS, Handler
from bot.i18n import LANGUAGES, language_of, place_of, text

MODULES = (conversation, info, link, memory, remind)
"""Where commands are; importing one declares its commands."""

KNOWN = frozenset(COMMANDS)


def handlers(services: Collection[object]) -> Mapping[str, Handler]:
    """What runs each command, by its name: a method of one of these.

    Raises:
        KeyError: the class of a command is not among them: a mistake in the program.
    """
    found: dict[str, Handler] = {}
    for name, each in COMMANDS.items():
        method = each.method.__name__
        owners = (one for one in services if vars(type(one)).get(method) is each.method)
        if (owner := next(owners, None)) is None:
            raise KeyError(each.method.__qualname__)
        found[name] = getattr(owner, method)
    return found


def menus() -> dict[str, Sequence[Command]]:
    """The menu in every language; in English for whoever speaks another one."""
    return {"": menu("en"), **{language: menu(language) for language in LANGUAGES}}


def menu(locale: str) -> tuple[Command, ...]:
    """Every command that is listed, in the person's language and in the order of the catalog."""
    language = language_of(locale)
    listed = [name for name, each in COMMANDS.items() if each.is_listed]
    return tuple(
        Command(
            name,
            text(language, f"command.{name}.description"),
            text(language, f"command.{name}.usage"),
            is_private=COMMANDS[name].is_private,
        )
        for name in sorted(listed, key=lambda each: place_of(f"command.{each}.description"))
    )
