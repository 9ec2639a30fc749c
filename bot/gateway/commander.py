"""Runs commands: one transaction changes, answers, notes it in the transcript, and is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

import structlog

from bot.channel import Inbound
from bot.clock import Clock
from bot.commands.base import Apply, Call, Handler, saying
from bot.commands.parse import Parsed, is_abort, parse
from bot.gateway import inbox
from bot.gateway.inbox import Waiting
from bot.gateway.ledger import Draft, Ledger
from bot.gateway.people import People
from bot.gateway.running import RunningTurns
from bot.i18n import text
from bot.sessions.entries import NewEntry

log = structlog.get_logger(__name__)


class Commander:
    """Recognises commands and runs them."""

    def __init__(
        self,
        people: People,
        handlers: Mapping[str, Handler],
        running: RunningTurns,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self._people = people
        self._handlers = handlers
        self._running = running
        self._ledger = ledger
        self._clock = clock

    def parse(self, inbound: Inbound, key: str) -> Parsed | None:
        """The command a message of a key is; "stop" alone is one while a reply is being written."""
        if inbound.edit_of:
            return None  # correcting an old command does not give it again
        if is_abort(inbound.text) and key in self._running:
            return Parsed("stop")
        found = parse(inbound.text)
        # In rooms there may be other bots: "/help@another" is for that one.
        is_theirs = found is not None and found.to and inbound.chat_type != "direct"
        return None if is_theirs else found

    async def run(self, waiting: Waiting, parsed: Parsed) -> Waiting | None:
        """Answer a command; what remains to be said to the model is returned as a message."""
        handler = self._handlers.get(parsed.name, self._unknown)
        inbound = waiting.inbound
        async with AsyncExitStack() as scope:
            call = Call(
                name=parsed.name,
                rest=parsed.rest,
                inbound=inbound,
                place=self._people.place(inbound),
                person=self._people.person(inbound),
                is_owner=self._people.is_owner(inbound),
                language=self._people.language(inbound),
                view=self._people.view(inbound),
                now=self._clock(),
                scope=scope,
            )
            apply = await handler(call)
            rest = await self._ledger.write(
                call.now, lambda draft: _carry_out(draft, waiting, call, apply), must=True
            )
        # What is no command may be anything: somebody's words do not go into the log.
        known = parsed.name if parsed.name in self._handlers else "unknown"
        log.info("command.done", command=known, channel=inbound.channel)
        return rest

    async def _unknown(self, call: Call) -> Apply:
        return saying(text(call.language, "command.unknown", name=call.name))


def _carry_out(draft: Draft, waiting: Waiting, call: Call, apply: Apply) -> Waiting | None:
    before, _ = draft.current(call.place)
    answer = apply(draft, before)
    inbound = call.inbound
    typed = call.typed.removesuffix(answer.message).strip()
    # The conversation that goes on is where the command and its answer are noted.
    after, _ = draft.current(call.place)
    notes = (
        NewEntry("command", "user", typed, source="" if answer.message else inbound.message_id),
        NewEntry("notice", "assistant", answer.text),
    )
    noted = draft.append(after.id, notes)
    draft.say(
        inbound.address,
        answer.text,
        language=call.language,
        asker=inbound.asker,
        entry=noted[-1],
        reply_to=inbound.to_answer,
        extra=answer.extra,
    )
    for session_id in (before.id, after.id):
        draft.touch(session_id)
    if not answer.message:
        inbox.done(draft.tx, [waiting.id], call.now)
        return None
    message = replace(inbound, text=answer.message)
    inbox.bind(draft.tx, waiting.id, after.id, message)
    return Waiting(waiting.id, waiting.key, after.id, message)
