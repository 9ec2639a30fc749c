"""The slash commands Discord shows: registered when what is registered differs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import structlog

from adapters.discord.api import Rest
from adapters.discord.interactions import OPTION
from bot.channel import Command
from bot.channel.kit.json_access import Json, child, children, integer, mapping, text

MAX_COMMANDS = 100  # Discord's limits
MAX_DESCRIPTION = 100
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_LOCALES: Mapping[str, tuple[str, ...]] = {"en": ("en-US", "en-GB"), "zh": ("zh-CN", "zh-TW")}
_PATH = "/applications/{application_id}/commands"
_EVERYWHERE = [0, 1]  # contexts: servers, and direct messages with the bot

_log = structlog.get_logger()


async def sync(rest: Rest, application: str, menus: Mapping[str, Sequence[Command]]) -> bool:
    """Register the commands unless they are; whether that was needed.

    Raises:
        DiscordException: as every call.
    """
    if await is_registered(rest, application, menus):
        return False
    await rest.call("PUT", _PATH, payload(menus), application_id=application)
    return True


async def is_registered(
    rest: Rest, application: str, menus: Mapping[str, Sequence[Command]]
) -> bool:
    """True when Discord shows just these commands.

    Raises:
        DiscordException: as every call.
    """
    found = await rest.call(
        "GET", _PATH, query={"with_localizations": "true"}, application_id=application
    )
    return _outline(children({"commands": found}, "commands")) == _outline(payload(menus))


def payload(menus: Mapping[str, Sequence[Command]]) -> list[Json]:
    """The commands as Discord takes them; what is typed after a name is one option."""
    made: list[Json] = []
    for command in menus.get("", ()):
        if not _NAME.fullmatch(command.name) or len(made) >= MAX_COMMANDS:
            _log.warning("discord.menu.skipped", command=command.name)
            continue
        entry: Json = {"name": command.name, "type": 1, "contexts": _EVERYWHERE}
        entry |= _described(command.description or command.name, _said(menus, command, usage=False))
        if command.usage.strip():
            option: Json = {"type": 3, "name": OPTION, "required": False}
            option |= _described(command.usage, _said(menus, command, usage=True))
            entry["options"] = [option]
        made.append(entry)
    return made


def _said(
    menus: Mapping[str, Sequence[Command]], command: Command, *, usage: bool
) -> dict[str, str]:
    """What a command is called in each language."""
    said: dict[str, str] = {}
    for tag, commands in menus.items():
        twin = next((c for c in commands if c.name == command.name), None)
        if not tag or twin is None:
            continue
        words = twin.usage if usage else twin.description
        language = tag.partition("-")[0].lower()
        for locale in _LOCALES.get(language, ()):
            said[locale] = _short(words or command.name)
    return said


def _described(words: str, said: dict[str, str]) -> Json:
    return {"description": _short(words), "description_localizations": said or None}


def _short(words: str) -> str:
    return words.strip()[:MAX_DESCRIPTION] or "…"


def _outline(commands: Sequence[Json]) -> dict[str, object]:
    """What of the commands matters: Discord adds ids, versions and defaults."""
    return {text(command, "name"): _entry(command) for command in commands}


def _entry(command: Json) -> object:
    return (
        integer(command, "type") or 1,
        text(command, "description"),
        sorted(child(command, "description_localizations").items()),
        sorted(command.get("contexts") or _EVERYWHERE),
        [
            (
                integer(option, "type"),
                text(option, "name"),
                text(option, "description"),
                sorted(mapping(option.get("description_localizations")).items()),
                option.get("required") is True,
            )
            for option in children(command, "options")
        ],
    )
