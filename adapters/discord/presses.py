"""Interactions as Discord sends them → `Inbound` values: pure. Commands, and presses on buttons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from adapters.discord.inbound import CHANNEL, Identity, name_of, sent_at
from adapters.discord.places import DM, Place, place_of
from adapters.discord.shapes import Json, child, children, identity, integer, node, text
from bot.channel import Inbound

EVENT: Final = "INTERACTION_CREATE"
OPTION = "text"  # the one option of a command, for all that is typed after its name
MAX_COMMAND = 100  # characters a button can carry, a rule of Discord's

# Answers that are nobody else's business, and that a room needs not keep.
PRIVATE = frozenset(
    {"status", "whoami", "help", "context", "memory", "usage", "whosees", "reminders"}
)

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
    message: str = ""  # the one the button stands below
    is_private: bool = False  # whether the answer is for the person alone


def interaction_of(data: object) -> Interaction | None:
    """What an event is to be answered by; None when it is no command and no press."""
    event = node(data)
    if event is None:
        return None
    kind = integer(event, "type")
    number, application = identity(event, "id"), identity(event, "application_id")
    token, chat = text(event, "token"), _chat(event)
    if kind not in {_COMMAND, _COMPONENT} or not (number and application and token and chat):
        return None
    name = text(child(event, "data"), "name")
    return Interaction(
        id=number,
        token=token,
        application=application,
        chat=chat,
        kind="command" if kind == _COMMAND else "press",
        message=identity(child(event, "message"), "id"),
        is_private=kind == _COMMAND and name in PRIVATE,
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


def normalise(data: object, account: str, me: Identity) -> Inbound | None:
    """What a person chose or pressed, as if they had typed it; None when it makes no sense."""
    event, interaction = node(data), interaction_of(data)
    if event is None or interaction is None:
        return None
    member = child(event, "member")
    user = node(event.get("user")) or child(member, "user")
    sender = identity(user, "id")
    is_command = interaction.kind == "command"
    words = _typed(child(event, "data")) if is_command else text(child(event, "data"), "custom_id")
    if not sender or sender == me.id or user.get("bot") is True or not words.startswith("/"):
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
        sender_name=name_of(user, member),
        message_id=f"{'interaction' if is_command else 'press'}-{interaction.id}",
        text=words,
        mentions_bot=True,
        locale=text(event, "locale")[:20],
        sent_at=sent_at(interaction.id),
        parent=place.parent,
        server=place.server,
    )


def _chat(event: Json) -> str:
    return identity(event, "channel_id") or identity(child(event, "channel"), "id")


def _typed(data: Json) -> str:
    """A command as a person would have typed it."""
    name = text(data, "name")
    given = [
        text(option, "value").strip()
        for option in children(data, "options")
        if text(option, "name") == OPTION
    ]
    return f"/{' '.join([name, *given])}".rstrip() if name else ""
