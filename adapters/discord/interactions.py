"""Interactions as Discord sends them → `Inbound` values: pure. Commands, and presses on buttons."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from adapters.discord.ids import identity, is_id, sent_at
from adapters.discord.inbound import CHANNEL, Identity, name_of
from adapters.discord.places import DM, Place, place_of
from bot.channel import Inbound
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
    token, chat, person = text(event, "token"), _chat(event), identity(_user(event), "id")
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
    """Whether a button can carry this command there and back."""
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


def _chat(event: Json) -> str:
    return identity(event, "channel_id") or identity(child(event, "channel"), "id")


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
