"""What comes in from rooms, and what may go on to the model.

Most of what is said in a room is not for the bot. It costs a look into memory, and one into the
database where a word in it could be a code. It is kept for a while, and goes along with the next
message that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from cachetools import LRUCache

from bot import codes
from bot.channel import Inbound
from bot.clock import Clock
from bot.gateway import pairing
from bot.gateway.rooms import Overheard
from bot.i18n import language_of, text
from bot.identity import Conversation, Directory, Facts, Verdict
from bot.identity.message import pointed
from bot.ledger import Draft, Ledger
from bot.metrics import Metrics
from bot.sessions import inbox, links, rooms
from bot.sessions.inbox import Waiting
from bot.storage import Database, Transaction

DAY_MS = 86_400_000  # a room is told at most once within it that it is none of ours
MAX_TOLD = 10_000  # rooms remembered as told; the database knows the others

log = structlog.get_logger(__name__)


def void_codes(
    draft: Draft, inbound: Inbound, language: str, *, answers: bool
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
        words = text(language, "codes.in_room" if is_room else "codes.in_chat")
        draft.say(inbound.address, words, "notice", language=language)
    for made in offered:
        words = text(made.language, "codes.link_void", channel=inbound.channel)
        draft.say(made.address, words, "notice", language=made.language)
    for waiting in asked:
        if waiting.address != inbound.address:
            theirs = language_of(waiting.locale)
            words = text(theirs, "codes.pairing_void")
            draft.say(waiting.address, words, "notice", language=theirs)
    return tuple(asked)


class RoomDoor:
    """Lets in what is said to the bot in a room where it may talk, by who may talk to it."""

    def __init__(
        self,
        *,
        directory: Directory,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._directory = directory
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._told: LRUCache[str, int] = LRUCache(MAX_TOLD)  # when each room was, or was asked
        self.overheard = Overheard()

    async def enter(self, inbound: Inbound, conversation: Conversation) -> Inbound | None:
        """A message for the bot, with what was said before it; None for everything else.

        Raises:
            StorageError: the room could not be told that the bot does not talk there, or a code
                that was typed in it could not be made worthless.
        """
        verdict, key = conversation.verdict, conversation.key
        await self._void_codes(inbound, conversation)
        if verdict is Verdict.ALLOW and conversation.is_addressed:
            if conversation.command is not None:
                return inbound  # what was overheard is for the model
            return replace(inbound, heard=self.overheard.take(key))
        if verdict is Verdict.ALLOW:
            self._hear(inbound, key)
            return None
        declines = verdict in {Verdict.LISTEN, Verdict.DECLINE} and pointed(inbound)
        if verdict is Verdict.LISTEN:
            self._hear(inbound, key)
        else:
            self._count(inbound, "declined" if declines else "denied")
        if declines:
            await self._decline(conversation)
        return None

    def give_back(self, inbound: Inbound, conversation: Conversation) -> None:
        """A message that was let in could not be stored: keep what was to go with it."""
        if inbound.heard:
            self.overheard.give_back(conversation.key, inbound.heard)

    async def _void_codes(self, inbound: Inbound, conversation: Conversation) -> None:
        """Let no code be of use that everybody in the room has read."""
        typed, now = codes.typed_in(inbound.shown), self._clock()
        if not typed:
            return

        def is_open(tx: Transaction) -> bool:
            return links.is_open(tx, typed, now) or pairing.is_open(tx, typed, now)

        # Many a word could be a code: only for one that is does anything have to be written.
        if not await self._database.read(is_open):
            return
        is_ours = conversation.verdict in {Verdict.ALLOW, Verdict.LISTEN}
        talks, language = is_ours and conversation.is_answered, conversation.language
        await self._ledger.write(
            now, lambda draft: void_codes(draft, inbound, language, answers=talks)
        )
        log.info("code.void", channel=inbound.channel)

    def _hear(self, inbound: Inbound, key: str) -> None:
        self.overheard.hear(key, inbound)
        self._count(inbound, "heard")

    async def _decline(self, conversation: Conversation) -> None:
        """Say once a day, and in the same words whatever the reason, that this is not possible."""
        facts, now = conversation.facts, self._clock()
        key = self._directory.of(_whole_room(facts)).key
        told = self._told.get(key)
        if told is not None and abs(now - told) < DAY_MS:
            return
        language = conversation.language
        words = text(language, "rooms.declined")

        def work(draft: Draft) -> bool:
            draft.then(lambda: self._told.__setitem__(key, now))
            if not rooms.warn(draft.tx, key, now, DAY_MS):
                return False
            draft.say(conversation.address, words, "notice", language=language)
            return True

        if (await self._ledger.write(now, work)).result:
            # Whoever runs the bot needs the id to list the room.
            log.info("room.declined", channel=facts.channel, chat=facts.chat)

    def _count(self, inbound: Inbound, result: str) -> None:
        self._metrics.received.labels(inbound.channel, result).inc()


def _whole_room(facts: Facts) -> Facts:
    """The room that something was said in: its threads and topics are one room with it."""
    if facts.parent:
        return replace(facts, chat=facts.parent, chat_type="channel", thread="")
    return replace(facts, thread="")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Messages a turn may answer, and those that wait in the lane of another key from now on."""

    rows: tuple[Waiting, ...]
    elsewhere: tuple[Waiting, ...]


class TurnDoor:
    """Lets a lane's messages on to the model, if they still belong there and may be answered."""

    def __init__(
        self, directory: Directory, ledger: Ledger, clock: Clock, metrics: Metrics
    ) -> None:
        self._directory = directory
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics

    async def admit(self, key: str, rows: Sequence[Waiting]) -> Admitted:
        """What of these messages, all of one session, is to be answered here and elsewhere.

        What was known of a message when it came may not hold any more: an account was joined or
        parted, a pairing revoked, a room moved, the configuration is another one.
        """
        kept: list[Waiting] = []
        elsewhere: list[Waiting] = []
        for row in rows:
            conversation = self._directory.renewed(row.conversation)
            if conversation.key != key:
                elsewhere += await self._rehomed(row, conversation)
            elif not (conversation.is_admitted and conversation.is_answered):
                await self._refuse(row)
            else:
                kept.append(replace(row, conversation=conversation))
        return Admitted(tuple(kept), tuple(elsewhere))

    async def _rehomed(self, row: Waiting, conversation: Conversation) -> Sequence[Waiting]:
        place = conversation.place

        def work(draft: Draft) -> None:
            session, _ = draft.current(place)
            inbox.rehome(draft.tx, row.id, place.key, session.id)
            row_there = replace(row, key=place.key, session_id=session.id)
            draft.answer(replace(row_there, conversation=conversation))

        return (await self._ledger.write(self._clock(), work, must=True)).due

    async def _refuse(self, row: Waiting) -> None:
        now = self._clock()
        await self._ledger.write(now, lambda d: inbox.refuse(d.tx, row.id, now), must=True)
        self._metrics.turns.labels("refused").inc()
