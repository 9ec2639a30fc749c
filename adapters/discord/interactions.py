"""Interactions as Discord sends them → `Inbound` values: pure. Commands, and presses on buttons."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from adapters.discord.api import Rest, identity, is_id, sent_at
from adapters.discord.inbound import CHANNEL, Identity, name_of
from adapters.discord.places import DM, Place, place_of
from bot.channel import Command, Inbound
from bot.channel.kit.json_access import Json, child, children, integer, mapping, text

EVENT: Final = "INTERACTION_CREATE"
OPTION = "text"  # the one option of a command, for all that is typed after its name
MAX_COMMAND = 100  # characters a button can carry, a rule of Discord's

_PRIVATE = "private"
_COMMAND, _COMPONENT = 2, 3
# Contexts: with the bot alone, and people among themselves.
_BOT_DM, _PRIVATE_CHANNEL = 1, 2


@dataclass(frozen=True, slots=True)
class Interaction:
    """What waits for an answer, for three seconds and then, once acknowledged, for 15 minutes."""

    id: str
    token: str
    application: str
    chat: str
    kind: Literal["command", "press"]
    person: str
    message: str = ""  # the one the button stands below
    is_private: bool = False  # True when the answer is for the person alone

    @property
    def message_id(self) -> str:
        """The id of its message to the engine; that of a private one says whom to answer alone."""
        if self.is_private:
            return f"{_PRIVATE}-{self.person}-{self.id}"
        return f"{'interaction' if self.kind == 'command' else 'press'}-{self.id}"


def private_to(message_id: str) -> str:
    """The person an answer to this message is for alone, or empty; so also after a restart."""
    kind, _, rest = message_id.partition("-")
    person, _, number = rest.partition("-")
    return person if kind == _PRIVATE and is_id(person) and is_id(number) else ""


def interaction_of(data: object, public: Collection[str] = ()) -> Interaction | None:
    """What an event is to be answered by; None when it is no command and no press.

    The answer to a command is for the person alone, unless it is one of the `public` ones.
    """
    event = mapping(data)
    kind = integer(event, "type")
    number, application = identity(event, "id"), identity(event, "application_id")
    chat = identity(event, "channel_id") or identity(child(event, "channel"), "id")
    token, person = text(event, "token"), identity(_user(event), "id")
    known = number and application and token and chat and person
    if kind not in {_COMMAND, _COMPONENT} or not known:
        return None
    name = text(child(event, "data"), "name")
    return Interaction(
        id=number,
        token=token,
        application=application,
        chat=chat,
        kind="command" if kind == _COMMAND else "press",
        person=person,
        message=identity(child(event, "message"), "id"),
        is_private=kind == _COMMAND and name not in public,
    )


def place_in(event: Json) -> Place:
    """Where it happened; unlike a message, an interaction says so itself."""
    channel, server = child(event, "channel"), identity(event, "guild_id")
    if integer(event, "context") == _PRIVATE_CHANNEL:
        return Place("group")
    if not channel and not server and integer(event, "context") == _BOT_DM:
        channel = {"type": DM}
    return place_of(channel, server)


def pressable(command: str) -> bool:
    """True if a button can carry this command there and back."""
    return command.startswith("/") and len(command) <= MAX_COMMAND and command.isprintable()


def normalise(
    data: object, account: str, me: Identity, public: Collection[str] = ()
) -> Inbound | None:
    """What a person chose or pressed, as if they had typed it; None when it makes no sense."""
    event, interaction = mapping(data), interaction_of(data, public)
    if interaction is None:
        return None
    user, sender = _user(event), interaction.person
    is_command = interaction.kind == "command"
    words = _typed(child(event, "data")) if is_command else text(child(event, "data"), "custom_id")
    if sender == me.id or user.get("bot") is True or not words.startswith("/"):
        return None
    if not is_command and not pressable(words):
        return None
    place = place_in(event)
    return Inbound(
        channel=CHANNEL,
        account=account,
        chat=interaction.chat,
        chat_type=place.kind,
        sender=sender,
        sender_name=name_of(user, child(event, "member")),
        message_id=interaction.message_id,
        text=words,
        mentions_bot=True,
        locale=text(event, "locale")[:20],
        sent_at=sent_at(interaction.id),
        parent=place.parent,
        server=place.server,
    )


def _user(event: Json) -> Json:
    return mapping(event.get("user")) or child(child(event, "member"), "user")


def _typed(data: Json) -> str:
    """A command as a person would have typed it."""
    name = text(data, "name")
    given = [
        text(option, "value").strip()
        for option in children(data, "options")
        if text(option, "name") == OPTION
    ]
    return f"/{' '.join([name, *given])}".rstrip() if name else ""


# The slash commands Discord shows: registered when what is registered differs.

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
