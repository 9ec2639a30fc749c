"""Interactions: commands and presses on buttons, read, answered and registered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog
from cachetools import LRUCache

from adapters.discord.api import Rest, identity, is_id, sent_at
from adapters.discord.inbound import CHANNEL, Identity, name_of
from adapters.discord.places import DM, Place, place_of
from bot.channel import Command, Inbound, Piece
from bot.channel.kit.json_access import Json, child, children, integer, mapping, text
from bot.errors import ChannelError

EVENT: Final = "INTERACTION_CREATE"
EPHEMERAL: Final = 1 << 6  # a flag: only one person sees it
OPTION = "text"  # the one option of a command, for all that is typed after its name
MAX_COMMAND = 100  # characters a button can carry, a rule of Discord's

_PRIVATE = "private"
_COMMAND, _COMPONENT = 2, 3
# Contexts: with the bot alone, and people among themselves.
_BOT_DM, _PRIVATE_CHANNEL = 1, 2


@dataclass(frozen=True, slots=True)
class Interaction:
    """An interaction to be answered within three seconds, once acknowledged within 15 minutes."""

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
    """The interaction to answer an event with; None if it is neither a command nor a press.

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
    """The place it happened in; unlike a message, an interaction says so itself."""
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
    """A person's choice or press, as if they had typed it; None if it makes no sense."""
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

Menus = Mapping[str, Sequence[Command]]  # by language


async def sync(rest: Rest, application: str, menus: Menus) -> bool:
    """Register the commands unless they are; whether that was needed.

    Raises:
        ChannelError: as every call.
    """
    if await is_registered(rest, application, menus):
        return False
    await rest.call("PUT", _PATH, payload(menus), application_id=application)
    return True


async def is_registered(rest: Rest, application: str, menus: Menus) -> bool:
    """True when Discord shows just these commands.

    Raises:
        ChannelError: as every call.
    """
    found = await rest.call(
        "GET", _PATH, query={"with_localizations": "true"}, application_id=application
    )
    return _outline(children({"commands": found}, "commands")) == _outline(payload(menus))


def payload(menus: Menus) -> list[Json]:
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


def _said(menus: Menus, command: Command, *, usage: bool) -> dict[str, str]:
    """The names of a command, by language."""
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
    """The parts of commands that matter: Discord adds ids, versions and defaults."""
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


# Interactions that wait: acknowledging them, and finding the one an answer belongs to.

REMEMBERED = 1024  # interactions and pressed messages kept in mind
ACK_WAIT = 5.0  # seconds an answer waits for the acknowledgement before it

_DEFERRED, _DEFERRED_UPDATE, _UPDATE = 5, 6, 7


@dataclass(slots=True)
class Waiting:
    """A command whose answer is awaited; `answer` is the id of the text that answers it."""

    interaction: Interaction
    acknowledged: asyncio.Future[bool]
    answer: str = ""
    is_filled: bool = False  # whether the answer has taken the place of "thinking…"
    timer: asyncio.TimerHandle | None = None


class PendingInteractions:
    """The interactions of one account. Tokens live here for 15 minutes and are never stored.

    After a restart, or when Discord no longer knows a token, the answer is a plain message; one for
    a person alone goes to their direct chat (`Sender`). It has many methods because an interaction
    opens, is stored, acknowledged, claimed, filled, and ends in several ways.

    Args:
        spawn: runs something in a task that ends with the account.
        unanswered: seconds until a "thinking…" that nobody answers is taken away.
    """

    def __init__(
        self,
        rest: Rest,
        account: str,
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
        unanswered: float,
    ) -> None:
        self._rest = rest
        self._account = account
        self._spawn = spawn
        self._unanswered = unanswered
        self._waiting: dict[str, Waiting] = {}
        # Messages, and the press on them that counts.
        self._pressed: LRUCache[str, str] = LRUCache(REMEMBERED)

    # --- what comes in ---------------------------------------------------------------------------

    def repeated(self, interaction: Interaction) -> bool:
        """True if it came before, or the buttons it belongs to were pressed already."""
        if interaction.kind == "command":
            return interaction.id in self._waiting
        return self._pressed.get(interaction.message, interaction.id) != interaction.id

    def opened(self, interaction: Interaction) -> None:
        """It is about to be stored: its answer may come at any time from now."""
        if interaction.kind == "command":
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting[interaction.id] = Waiting(interaction, future)
            if len(self._waiting) > REMEMBERED:
                self._forget(next(iter(self._waiting)))

    def stored(self, interaction: Interaction) -> None:
        """It is on disk: tell the person's screen."""
        if interaction.kind == "press":
            if interaction.message:
                self._pressed[interaction.message] = interaction.id
            self._spawn(self._take_away(interaction))
            return
        waiting = self._waiting.get(interaction.id)
        if waiting is not None:
            self._spawn(self._acknowledge(waiting))

    def dismiss(self, interaction: Interaction) -> None:
        """It is nothing for the engine: end the waiting sign of a press, and nothing else."""
        if interaction.kind == "press":
            self._spawn(self._call_back(interaction, {"type": _DEFERRED_UPDATE}))

    def close(self) -> None:
        """The account stops: nothing is taken away any more."""
        for number in tuple(self._waiting):
            self._forget(number)

    # --- what goes out ---------------------------------------------------------------------------

    async def claim(self, piece: Piece, *, exact: bool) -> Waiting | None:
        """The interaction a text answers, or None when it is a message like any other.

        It is the one `reply_to` names; without `reply_to` the chat's oldest that has no answer yet,
        unless `exact`.
        """
        waiting = self._find(piece, exact=exact)
        if waiting is None:
            return None
        try:
            async with asyncio.timeout(ACK_WAIT):
                acknowledged = await asyncio.shield(waiting.acknowledged)
        except TimeoutError:
            acknowledged = False
        if not acknowledged:
            self._forget(waiting.interaction.id)
            return None
        waiting.answer = piece.whole.id
        return waiting

    def filled(self, waiting: Waiting) -> None:
        """The answer stands where "thinking…" was."""
        waiting.is_filled = True
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None

    def lost(self, waiting: Waiting) -> None:
        """Discord no longer knows it: the answer goes out as a message."""
        self._forget(waiting.interaction.id)

    def _find(self, piece: Piece, *, exact: bool) -> Waiting | None:
        if piece.kind == "reminder":
            return None  # it comes by itself
        chat = piece.address.chat
        here = [w for w in self._waiting.values() if w.interaction.chat == chat]
        for waiting in here:
            if waiting.answer == piece.whole.id:
                return waiting
        free = [waiting for waiting in here if not waiting.answer]
        if piece.reply_to:
            names = (w for w in free if piece.reply_to == w.interaction.message_id)
            return next(names, None)
        return free[0] if free and not piece.index and not exact else None

    # --- courtesies ------------------------------------------------------------------------------

    async def _acknowledge(self, waiting: Waiting) -> None:
        flags = EPHEMERAL if waiting.interaction.is_private else 0
        done = await self._call_back(
            waiting.interaction, {"type": _DEFERRED, "data": {"flags": flags}}
        )
        if not waiting.acknowledged.done():
            waiting.acknowledged.set_result(done)
        if done and not waiting.is_filled and waiting.interaction.id in self._waiting:
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(self._unanswered, self._give_up, waiting)
        elif not done:
            self._forget(waiting.interaction.id)

    def _give_up(self, waiting: Waiting) -> None:
        """Nobody answers: whoever may not talk here gets no answer, only their screen back."""
        self._forget(waiting.interaction.id)
        self._spawn(self._withdraw(waiting.interaction))

    async def _withdraw(self, interaction: Interaction) -> None:
        try:
            await self._rest.call(
                "DELETE",
                "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
                webhook_id=interaction.application,
                webhook_token=interaction.token,
            )
        except ChannelError as error:
            _log.debug("discord.interaction.kept", account=self._account, error=str(error))

    async def _take_away(self, interaction: Interaction) -> None:
        """End the waiting sign and take the buttons away, in one call."""
        answer: Json = {"type": _UPDATE, "data": {"components": []}}
        if not await self._call_back(interaction, answer):
            self._pressed.pop(interaction.message, None)  # they still stand there, so must work

    async def _call_back(self, interaction: Interaction, answer: Json) -> bool:
        try:
            await self._rest.call(
                "POST",
                "/interactions/{webhook_id}/{webhook_token}/callback",
                answer,
                webhook_id=interaction.id,
                webhook_token=interaction.token,
            )
        except ChannelError as error:
            said = str(error)
            _log.info("discord.interaction.unanswered", account=self._account, error=said)
            return False
        return True

    def _forget(self, number: str) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        if not waiting.acknowledged.done():
            waiting.acknowledged.set_result(False)
