"""How a command runs.

One transaction changes, answers, notes it in the transcript, and is done.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import structlog

from bot.agent.running import RunningTurns
from bot.channel import Inbound
from bot.clock import Clock
from bot.commands.base import COMMANDS, Answer, Apply, Call, Handler, saying
from bot.coordination import Coordination, Event
from bot.delivery import outbox
from bot.errors import StorageError
from bot.i18n import text
from bot.identity import Conversation, ConversationResolver, Parsed
from bot.identity.access import command_of, is_abort, parse
from bot.sessions import inbox
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.upkeep import Upkeep

# Stopping a turn from whichever node somebody asks for it.

HEARD_MS = 1_000  # after so long a node no longer does what it is asked: another turn may run now
ANSWER_SECONDS = 1.5  # for which an answer is waited
NOTHING: Final = frozenset[str]()

log = structlog.get_logger(__name__)


class TurnStops:
    """Reaches what runs on any node; `running` is what does on this one.

    A node that has something answers, so what the person is told is what happened. Where there is
    but one node nobody is asked.
    """

    def __init__(self, running: RunningTurns, coordination: Coordination, clock: Clock) -> None:
        self._running = running
        self._coordination = coordination
        self._clock = clock
        self._asked: dict[str, asyncio.Future[frozenset[str]]] = {}
        if coordination.is_shared:
            coordination.on("stop", self._hear)

    async def stop(self, key: str) -> frozenset[str]:
        """Stop what runs for a session key: what it was at (`Stage`), nothing if there is none."""
        found = self._running.stop(key)
        if found:  # what else runs for it elsewhere ends as well, and nobody waits for that
            await self._tell("stop", key, "unasked")
        return found or await self._ask("stop", key)

    async def is_running(self, key: str) -> bool:
        """True when something runs for a session key."""
        return key in self._running or bool(await self._ask("running", key))

    async def _ask(self, what: str, key: str) -> frozenset[str]:
        if not self._coordination.is_shared:
            return NOTHING
        name, answered = secrets.token_hex(8), asyncio.get_running_loop().create_future()
        self._asked[name] = answered
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answered if await self._tell(what, key, name) else NOTHING
        except TimeoutError:
            return NOTHING
        finally:
            del self._asked[name]

    async def _tell(self, what: str, key: str, name: str) -> bool:
        """Tell the other nodes; False when that did not work, or there are none."""
        if not self._coordination.is_shared:
            return False
        try:
            await self._coordination.publish(Event("stop", key, f"{what} {name} {self._clock()}"))
        except StorageError as error:
            log.warning("stop.not_told", error=type(error).__name__)
            return False
        return True

    async def _hear(self, event: Event) -> None:
        what, name, rest = event.body.split(" ")
        if what == "yes":
            answered = self._asked.get(name)
            if answered is not None and not answered.done():
                # A node of the version before says when it was asked.
                answered.set_result(frozenset(("reply",) if rest.isdigit() else rest.split(",")))
            return
        if self._clock() - int(rest) > HEARD_MS:
            return
        found: Collection[str] = ()
        if what == "stop":
            found = self._running.stop(event.name)
        elif event.name in self._running:
            found = ("reply",)
        if found and name != "unasked":
            told = ",".join(sorted(found))
            await self._coordination.publish(Event("stop", event.name, f"yes {name} {told}"))


class Commander:
    """Runs commands, by their handlers' names."""

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        committer: Committer,
        upkeep: Upkeep,
        stops: TurnStops,
        resolver: ConversationResolver,
        clock: Clock,
        joined: Callable[[], Awaitable[None]],
    ) -> None:
        """`joined` is called when accounts were joined or parted: what rests on it may be over."""
        self._handlers = handlers
        self._committer = committer
        self._upkeep = upkeep
        self._stops = stops
        self._resolver = resolver
        self._clock = clock
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
        """Answer a command; what remains to be said to the model is returned as a message."""
        handler = self._handlers.get(parsed.name, self._unknown)
        inbound = waiting.inbound
        async with AsyncExitStack() as scope:
            call = Call(
                name=parsed.name,
                rest=parsed.rest,
                inbound=inbound,
                conversation=waiting.conversation,
                now=self._clock(),
                scope=scope,
            )
            apply = await handler(call)
            commit = await self._committer.commit(
                call.now, lambda unit: _carry_out(unit, waiting, call, apply), until_stored=True
            )
            if (links := commit.result.links) is not None:
                self._resolver.linked(links)
                await self._joined()
            if (zones := commit.result.zones) is not None:
                self._resolver.zoned(zones)
            if (activation := commit.result.activation) is not None:
                self._resolver.activated(call.place.key, activation)
        self._upkeep.flush_ended(commit.ended)
        # What is no command may be anything: somebody's words do not go into the log.
        known = parsed.name if parsed.name in self._handlers else "unknown"
        log.info("command.done", command=known, channel=inbound.channel)
        return next(iter(commit.due), None)

    async def _unknown(self, call: Call) -> Apply:
        return saying(text(call.language, "command.unknown", name=call.name))


def _carry_out(unit: UnitOfWork, waiting: QueuedMessage, call: Call, apply: Apply) -> Answer:
    before, _ = unit.current(call.place)
    answer = apply(unit, before)
    inbound = call.inbound
    typed = answer.typed or call.typed.removesuffix(answer.message).strip()
    # The conversation that goes on is where the command and its answer are noted.
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
