"""Commands that change which conversation goes on, and with which model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final, get_args

from bot.agent.models.registry import Models
from bot.agent.running import Stage, TurnStops
from bot.channel import Address, Button, ModelChoice
from bot.commands.base import Apply, Call, CommandAnswer, command, saying
from bot.commands.info import not_saved
from bot.commands.memory import NIGHT, NightCommands
from bot.config import ANTHROPIC, Thinking
from bot.delivery.outbox import Extra
from bot.identity import Conversation, ConversationResolver
from bot.identity.routing import MessageOrigin
from bot.sessions import browsing, compactions, deleting, store
from bot.sessions.browsing import Listed
from bot.sessions.store import Session
from bot.storage import Database, fulltext
from bot.unicode import one_line
from bot.unit_of_work import UnitOfWork

MOST_NAMED = 40  # models at a time; services may have hundreds


class ModelChoices:
    """The models that `/model` and the page offer."""

    def __init__(self, models: Models, resolver: ConversationResolver, database: Database) -> None:
        self._models = models
        self._resolver = resolver
        self._database = database

    async def offered(self, here: Conversation) -> tuple[str, ...]:
        """The models that may be chosen there."""
        return tuple(name for name in await self._models.names() if self.may(here, name))

    def may(self, here: Conversation, name: str) -> bool:
        """True if a model may be chosen there, provided that it exists."""
        choices = here.config.agent.choices
        if not choices or (here.is_owner and here.is_direct):
            return True
        default = self._models.full("", here.config.agent.model)
        return any(fnmatchcase(name, pattern) for pattern in (default, *choices))

    async def at(self, address: Address, sender: str) -> ModelChoice:
        """The models a person may choose in a direct chat, and the one that answers them.

        Raises:
            StorageError: it cannot be read.
        """
        where = (address.channel, address.account, address.chat, "direct", sender, address.thread)
        here = self._resolver.of(MessageOrigin(*where))
        session = await self._database.read(lambda tx: store.current(tx, here.key))
        chosen, stand_in = (session.model, session.stand_in) if session is not None else ("", "")
        offered = await self.offered(here)
        named = offered[:MOST_NAMED]
        model = self._models.full(chosen, here.config.agent.model)
        return ModelChoice(model, stand_in, named, len(offered) - len(named))


MOST_BUTTONS = 8
MOST_EARLIER = 30  # conversations that can be named
LONGEST_NAME = 80  # characters of a conversation's name …
LONGEST_LABEL = 40  # … and on a button
LONGEST_COMMAND = 64  # bytes that every platform takes behind a button

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{10}")
_WORDS = re.compile(r"[-/:.]")


class ConversationCommands:
    """`/new`, `/reset`, `/undo`, `/continue`, `/stop`, `/model`, `/think`."""

    def __init__(
        self, stops: TurnStops, models: Models, choices: ModelChoices, night: NightCommands
    ) -> None:
        self._stops = stops
        self._night = night
        self._models = models
        self._choices = choices

    @command("new", "reset", is_aside=True)
    async def new(self, call: Call) -> Apply:
        """Begin a new conversation; the old one stays, and `/undo` goes back to it.

        A first word that is a model's name chooses that model; the rest is the first message.
        In an empty conversation nothing changes, so a second press does no harm.
        """
        first, _, rest = call.rest.partition(" ")
        chosen = _match(first, await self._choices.offered(call.conversation)) if first else ""
        message = rest.strip() if chosen else call.rest

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if store.is_untouched(unit.tx, session):
                if chosen:
                    store.change(unit.tx, session.id, model=chosen)
                key = "command.new.done_model" if chosen else "command.new.already"
                return CommandAnswer(call.text(key, model=chosen), message)
            unit.start(call.place, by="new", previous=session, model=chosen or session.model)
            key = "command.new.done_model" if chosen else "command.new.done"
            begun = Extra(begins=call.inbound.message_id)
            lines = [call.text(key, model=chosen)]
            if call.view.space:
                lines += not_saved(call, unit)
            return CommandAnswer("\n".join(lines), message, extra=begun)

        return apply

    @command(is_aside=True)
    async def undo(self, call: Call) -> Apply:
        """Undo the last summary or night, or go back to the previous conversation."""
        if call.rest.lower() in NIGHT:
            return await self._night.undo(call)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if compactions.undo(unit.tx, session) is not None:
                unit.stale.add(session.id)
                return CommandAnswer(call.text("command.undo.compaction"))
            before = store.get(unit.tx, session.previous) if session.previous else None
            while before is not None and before.deleted_at:
                before = store.get(unit.tx, before.previous) if before.previous else None
            if before is None:
                return CommandAnswer(call.text("command.undo.nothing"))
            store.point(unit.tx, session.key, before.id, call.now)
            count = browsing.count_of(unit.tx, before)
            words = call.text("command.undo.done", count=count)
            return CommandAnswer(words, extra=Extra(begins=call.inbound.message_id))

        return apply

    @command("continue", is_aside=True)
    async def resume(self, call: Call) -> Apply:
        """Continue an earlier conversation of this chat; without a name, list them."""

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            found = browsing.earlier(unit.tx, session, MOST_EARLIER)
            if _ID.fullmatch(call.rest):  # a button's, however long ago that was
                chosen = browsing.earlier(unit.tx, session, 1, id_=call.rest)
            else:
                chosen = _chosen(found, call.rest)
            if not chosen and deleting.is_deleted(unit.tx, session.key, call.rest):
                if not store.is_untouched(unit.tx, session):
                    unit.start(call.place, by="new", previous=session, model=session.model)
                begun = Extra(begins=call.inbound.message_id)
                return CommandAnswer(call.text("command.continue.deleted"), extra=begun)
            if len(chosen) != 1:
                key = "unknown" if call.rest and not chosen else "choose"
                return _earlier(call, key if found else "nothing", chosen or found)
            [one] = chosen.values()
            earlier = store.get(unit.tx, one.id)
            if earlier is None:
                raise LookupError(one.id)
            unit.resume(earlier, previous=session)
            done = Extra(begins=call.inbound.message_id)
            name = _name(call, one, LONGEST_NAME)
            return CommandAnswer(call.text("command.continue.done", name=name), extra=done)

        return apply

    @command(is_aside=True)
    async def stop(self, call: Call) -> Apply:
        """Stop the turn or summary that is running; what was written so far is kept."""
        stopped = await self._stops.stop(call.place.key)
        lines = [call.text(f"command.stop.{each}") for each in STAGES if each in stopped]
        return saying("\n".join(lines) or call.text("command.stop.nothing"))

    @command(is_aside=True)
    async def model(self, call: Call) -> Apply:
        """Show the model, or choose another for this conversation."""
        offered = await self._choices.offered(call.conversation)
        may = self._choices.may(call.conversation, call.rest)
        is_unlisted = may and self._models.is_unlisted(call.rest, offered)
        chosen = _match(call.rest, offered) or (call.rest if is_unlisted else "")
        own = call.conversation.config.agent.model
        default = self._models.full("", own)
        if chosen or call.rest.lower() == "default":
            await self._models.forget(chosen or default)
        names = ", ".join(f"`{name}`" for name in offered[:MOST_NAMED])
        if len(offered) > MOST_NAMED:
            more = len(offered) - MOST_NAMED
            names = call.text("command.model.more", names=names, count=more)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if not call.rest:
                now = self._models.full(session.model, own)
                words = call.text("command.model.now", model=now, names=names)
                return CommandAnswer(words, extra=_buttons(name for name in offered if name != now))
            if call.rest.lower() != "default" and not chosen:
                return CommandAnswer(call.text("command.model.unknown", names=names))
            store.change(unit.tx, session.id, model=chosen, stand_in="")
            return CommandAnswer(call.text("command.model.done", model=chosen or default))

        return apply

    @command(is_aside=True)
    async def think(self, call: Call) -> Apply:
        """Show how much the model thinks, or set it for this conversation."""
        wish = _LEVELS.get(call.rest.strip().lower())

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if wish is not None:
                store.change(unit.tx, session.id, thinking=wish)
            level = session.thinking if wish is None else wish
            said = call.text(f"command.think.level_{level or 'default'}")
            if wish is not None:
                return CommandAnswer(call.text("command.think.done", level=said))
            names = [name for name in LEVELS if name != (level or "default")]
            choices = [
                Button(call.text(f"command.think.level_{name}"), f"/think {name}") for name in names
            ]
            key = f"command.think.{'unknown' if call.rest else 'now'}"
            return CommandAnswer(call.text(key, level=said), extra=Extra(tuple(choices)))

        return apply


def _chosen(found: Mapping[int, Listed], words: str) -> Mapping[int, Listed]:
    """The conversations of a numbered list that match a number or words of the name."""
    wanted = fulltext.folded(words)
    number = int(wanted) if wanted.isdecimal() and len(wanted) <= 2 else 0
    if number in found:
        return {number: found[number]}
    return {n: e for n, e in found.items() if wanted and wanted in fulltext.folded(e.name)}


def _earlier(call: Call, key: str, found: Mapping[int, Listed]) -> CommandAnswer:
    """List conversations that can be continued, with a button each."""
    lines = [call.text(f"command.continue.{key}")]
    buttons = list[Button]()
    for number, each in islice(found.items(), MOST_BUTTONS):
        when = call.when(each.at)
        lines.append(f"{number}. {_name(call, each, LONGEST_NAME)} ({when})")
        label = _name(call, each, LONGEST_LABEL)
        buttons.append(Button(label, f"/continue {each.id}"))
    return CommandAnswer("\n".join(lines), extra=Extra(tuple(buttons)) if buttons else None)


def _name(call: Call, listed: Listed, most: int) -> str:
    return one_line(listed.name or call.text("conversations.untitled"), most)


LEVELS: Final = ("off", "low", "medium", "high", "default")
_LEVELS: Final[Mapping[str, Thinking]] = {
    "off": "off",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "default": "",
    "关": "off",
    "关闭": "off",
    "低": "low",
    "中": "medium",
    "高": "high",
    "默认": "",
}


def _buttons(names: Iterable[str]) -> Extra | None:
    """A button for each of a few models."""
    commands = [Button(name, f"/model {name}") for name in names]
    fitting = [each for each in commands if len(each.command.encode()) <= LONGEST_COMMAND]
    return Extra(tuple(fitting)) if 0 < len(fitting) <= MOST_BUTTONS else None


def _match(word: str, known: tuple[str, ...]) -> str:
    """The model a word names: exactly, or as the only one that contains it ("opus"); or empty."""
    wanted = word.strip().lower()
    if not wanted:
        return ""
    # Without a service it is one of the anthropic table's, as in the configuration.
    for full in (wanted, f"{ANTHROPIC}/{wanted}"):
        if found := [name for name in known if name.lower() == full]:
            return found[0]
    named = [name for name in known if name.lower().partition("/")[2] == wanted]
    if len(named) == 1:
        return named[0]
    close = [name for name in known if wanted in _WORDS.split(name.lower())]
    return close[0] if len(close) == 1 else ""
