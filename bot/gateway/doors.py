"""What comes in from rooms, and what may go on to the model.

Most of what is said in a room is not for the bot. It costs a look into memory, and one into the
database where a word in it could be a code. It is kept for a while, and goes along with the next
message that is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import structlog

from bot import codes
from bot.channel import Inbound
from bot.clock import Clock
from bot.commands.parse import parse
from bot.gateway import inbox, pairing
from bot.gateway.access import Verdict
from bot.gateway.inbox import Waiting
from bot.gateway.ledger import Draft, Ledger
from bot.gateway.people import People
from bot.gateway.rooms import Overheard, addressed, pointed
from bot.i18n import language_of, text
from bot.metrics import Metrics
from bot.sessions import links, rooms
from bot.storage import Database, Transaction

DAY_MS = 86_400_000  # a room is told at most once within it that it is none of ours

log = structlog.get_logger(__name__)


def void_codes(
    draft: Draft, people: People, inbound: Inbound, *, answers: bool
) -> tuple[pairing.Pairing, ...]:
    """Make codes worthless that were typed where they do not belong, and say so.

    That is any in a room, and one for pairing in a direct chat: it is for the operator's command
    line. Whose codes they were is told, and with `answers` whoever typed them; those who had asked
    for pairing are returned.
    """
    typed = codes.typed_in(inbound.shown)
    if not typed:
        return ()
    is_room = inbound.chat_type != "direct"
    asked = pairing.void(draft.tx, typed, draft.now)
    offered = links.void(draft.tx, typed, draft.now) if is_room else []
    if answers and (asked or offered):
        language = people.language(inbound)
        words = text(language, "codes.in_room" if is_room else "codes.in_chat")
        draft.say(inbound.address, words, "notice", language=language)
    for made in offered:
        words = text(made.language, "codes.link_void", channel=inbound.channel)
        draft.say(made.address, words, "notice", language=made.language)
    for waiting in asked:
        if waiting.address != inbound.address:
            language = language_of(waiting.locale)
            words = text(language, "codes.pairing_void")
            draft.say(waiting.address, words, "notice", language=language)
    return tuple(asked)


class RoomDoor:
    """Lets in what is said to the bot in a room where it may talk, by who may talk to it."""

    def __init__(
        self,
        *,
        people: People,
        commands: Collection[str],
        database: Database,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._people = people
        self._commands = commands
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self.overheard = Overheard()

    async def enter(self, inbound: Inbound) -> Inbound | None:
        """A message for the bot, with what was said before it; None for everything else.

        Raises:
            StorageError: the room could not be told that the bot does not talk there, or a code
                that was typed in it could not be made worthless.
        """
        verdict = self._people.verdict(inbound)
        await self._void_codes(inbound, verdict)
        if verdict is Verdict.ALLOW:
            return self._listen(inbound)
        declines = verdict in {Verdict.LISTEN, Verdict.DECLINE} and pointed(inbound)
        if verdict is Verdict.LISTEN:
            self._hear(inbound)
        else:
            self._count(inbound, "declined" if declines else "denied")
        if declines:
            await self._decline(inbound)
        return None

    def give_back(self, inbound: Inbound) -> None:
        """A message that was let in could not be stored: keep what was to go with it."""
        if inbound.heard:
            self.overheard.give_back(self._people.key(inbound), inbound.heard)

    def _listen(self, inbound: Inbound) -> Inbound | None:
        """Somebody who may talk to the bot said something; is it for the bot?"""
        people, key = self._people, self._people.key(inbound)
        command = parse(inbound.text)
        is_own = command is not None and command.name in self._commands and not command.to
        # Other bots have commands too ("/weather", "/help@another"): they need a mention.
        activation = people.rooms.activation(key) if command is None else "mention"
        name = people.config.agent.name
        if not addressed(people.channel(inbound), inbound, activation, name, is_command=is_own):
            self._hear(inbound, key)
            return None
        if command is not None and not command.to:
            return inbound  # what was overheard is for the model
        return replace(inbound, heard=self.overheard.take(key))

    async def _void_codes(self, inbound: Inbound, verdict: Verdict) -> None:
        """Let no code be of use that everybody in the room has read."""
        typed, now = codes.typed_in(inbound.shown), self._clock()
        if not typed:
            return

        def is_open(tx: Transaction) -> bool:
            return links.is_open(tx, typed, now) or pairing.is_open(tx, typed, now)

        # Many a word could be a code: only for one that is does anything have to be written.
        if not await self._database.read(is_open):
            return
        talks = verdict in {Verdict.ALLOW, Verdict.LISTEN} and self._people.permits(inbound)
        await self._ledger.write(
            now, lambda draft: void_codes(draft, self._people, inbound, answers=talks)
        )
        log.info("code.void", channel=inbound.channel)

    def _hear(self, inbound: Inbound, key: str = "") -> None:
        self.overheard.hear(key or self._people.key(inbound), inbound)
        self._count(inbound, "heard")

    async def _decline(self, inbound: Inbound) -> None:
        """Say once a day, and in the same words whatever the reason, that this is not possible."""
        people, now = self._people, self._clock()
        # Threads of one room, and its topics, are one room.
        chat, kind = inbound.chat, inbound.chat_type
        if inbound.parent:
            chat, kind = inbound.parent, "channel"
        key = people.key(replace(inbound, chat=chat, chat_type=kind, thread=""))
        if people.rooms.was_warned(key, now, DAY_MS):
            return
        language = people.language(inbound)
        words = text(language, "rooms.declined")

        def work(draft: Draft) -> bool:
            draft.then(lambda: people.rooms.warned(key, now))
            if not rooms.warn(draft.tx, key, now, DAY_MS):
                return False
            draft.say(inbound.address, words, "notice", language=language)
            return True

        if await self._ledger.write(now, work):
            # Whoever runs the bot needs the id to list the room.
            log.info("room.declined", channel=inbound.channel, chat=inbound.chat)

    def _count(self, inbound: Inbound, result: str) -> None:
        self._metrics.received.labels(inbound.channel, result).inc()


class TurnDoor:
    """Lets a lane's messages on to the model, if they still belong there and may be answered."""

    def __init__(
        self,
        *,
        people: People,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
        answer: Callable[[str, Sequence[Waiting]], Awaitable[None]],
        put: Callable[[Waiting], Awaitable[None]],
    ) -> None:
        self._people = people
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._answer = answer
        self._put = put

    async def run(self, key: str, rows: Sequence[Waiting]) -> None:
        """Answer these messages, all of one session; what has to go elsewhere goes there."""
        kept: list[Waiting] = []
        for row in rows:
            if self._people.key(row.inbound) != key:
                # Since it was stored its person was joined to another one, or its room has moved.
                await self._put(await self._rehomed(row))
            elif not self._people.permits(row.inbound):
                await self._refuse(row)
            else:
                kept.append(row)
        if kept:
            await self._answer(key, kept)

    async def _rehomed(self, row: Waiting) -> Waiting:
        place = self._people.place(row.inbound)

        def work(draft: Draft) -> Waiting:
            session, _ = draft.current(place)
            inbox.rehome(draft.tx, row.id, place.key, session.id)
            return replace(row, key=place.key, session_id=session.id)

        return await self._ledger.write(self._clock(), work, must=True)

    async def _refuse(self, row: Waiting) -> None:
        now = self._clock()
        await self._ledger.write(now, lambda d: inbox.refuse(d.tx, row.id, now), must=True)
        self._metrics.turns.labels("refused").inc()
