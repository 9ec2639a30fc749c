"""Runs commands: one transaction makes the change, answers, and notes both in the transcript."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import structlog

from bot.agent.running import TurnStops
from bot.channel import Command, Inbound
from bot.commands import conversation, info, link, memory, remind
from bot.commands.base import COMMANDS, Apply, Call, CommandAnswer, Handler, saying
from bot.core import Core
from bot.delivery import outbox
from bot.i18n import LANGUAGES, language_of, place_of, text
from bot.identity import Conversation, Parsed
from bot.identity.access import command_of, is_abort, parse
from bot.identity.routing import room_of
from bot.sessions import inbox
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.upkeep import Upkeep

log = structlog.get_logger(__name__)


class Commander:
    """Runs commands, by their handlers' names."""

    def __init__(
        self,
        core: Core,
        *,
        handlers: Mapping[str, Handler],
        committer: Committer,
        upkeep: Upkeep,
        stops: TurnStops,
        joined: Callable[[], Awaitable[None]],
    ) -> None:
        """`joined` is called after accounts were linked or unlinked, as logins may depend on it."""
        self._handlers = handlers
        self._committer = committer
        self._upkeep = upkeep
        self._stops = stops
        self._core = core
        self._joined = joined

    async def command_in(self, inbound: Inbound, conversation: Conversation) -> Parsed | None:
        """The command to answer at once, if a message is one.

        "stop" alone is one while a reply is being written.
        """
        may_stop = conversation.command is None and not inbound.edit_of
        if may_stop and is_abort(inbound.text) and await self._stops.is_running(conversation.key):
            return Parsed("stop")
        return conversation.command

    async def run(self, waiting: QueuedMessage, parsed: Parsed) -> QueuedMessage | None:
        """Answer a command; return what is left of its text as a message for the model."""
        handler = self._handlers.get(parsed.name, self._unknown)
        inbound = waiting.inbound
        async with AsyncExitStack() as scope:
            call = Call(
                name=parsed.name,
                rest=parsed.rest,
                inbound=inbound,
                conversation=waiting.conversation,
                now=self._core.clock(),
                scope=scope,
            )
            apply = await handler(call)
            commit = await self._committer.commit(
                call.now, lambda unit: _carry_out(unit, waiting, call, apply), until_stored=True
            )
            if (links := commit.result.links) is not None:
                self._core.resolver.linked(links)
                await self._joined()
            if (zones := commit.result.zones) is not None:
                self._core.resolver.zoned(zones)
            if (activation := commit.result.activation) is not None:
                self._core.resolver.activated(room_of(call.place.key), activation)
        self._upkeep.flush_ended(commit.ended)
        # An unknown command may be any text, which must not go into the log.
        known = parsed.name if parsed.name in self._handlers else "unknown"
        log.info("command.done", command=known, channel=inbound.channel)
        return next(iter(commit.due), None)

    async def _unknown(self, call: Call) -> Apply:
        return saying(call.text("command.unknown", name=call.name))


def _carry_out(unit: UnitOfWork, waiting: QueuedMessage, call: Call, apply: Apply) -> CommandAnswer:
    before, _ = unit.current(call.place)
    answer = apply(unit, before)
    inbound = call.inbound
    typed = answer.typed or call.typed.removesuffix(answer.message).strip()
    # The command and its answer are noted in the conversation that is current afterwards.
    after, _ = unit.current(call.place)
    extra, declared = answer.extra or outbox.NOTHING, COMMANDS.get(call.name)
    is_aside = declared is not None and declared.is_aside and not extra.buttons
    mark = "aside" if is_aside else ""
    notes = (
        NewEntry(
            "command",
            "user",
            typed,
            source="" if answer.message else inbound.message_id,
            said_at=inbound.sent_at,
            mark=mark,
        ),
        NewEntry("notice", "assistant", answer.noted or answer.text, mark=mark),
    )
    noted = unit.append(after.id, notes)
    unit.say(
        inbound.address,
        answer.text,
        language=call.language,
        asker=inbound.asker,
        entry=noted[-1],
        reply_to=inbound.to_answer,
        extra=replace(extra, aside=inbound.message_id if is_aside else ""),
    )
    for session_id in (before.id, after.id):
        unit.refresh(session_id)
    if not answer.message:
        inbox.done(unit.tx, [waiting.id], call.now)
        return answer
    message = replace(inbound, text=answer.message, answers=answer.question)
    inbox.bind(unit.tx, waiting.id, after.id, message)
    parsed = parse(message.text)
    command = command_of(message, parsed) if parsed is not None else None
    conversation = replace(waiting.conversation, command=command)
    unit.queue(QueuedMessage(waiting.id, waiting.key, after.id, message, conversation))
    return answer


# Every command: its handler, and its place in menus, completion and `/help`.

MODULES = (conversation, info, link, memory, remind)
"""Modules with commands; importing one declares them."""

KNOWN = frozenset(COMMANDS)


def handlers(services: Collection[object]) -> Mapping[str, Handler]:
    """Return the handler of each command: a method of one of these services.

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
    """The menu in every language; "" is for all others."""
    return {"": menu("en"), **{language: menu(language) for language in LANGUAGES}}


def menu(locale: str) -> tuple[Command, ...]:
    """Every listed command, in the person's language and in the order of the catalog."""
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
