"""Admission: which messages from chats and rooms are taken, and which may go on to the model.

Most of what is said in a room is not for the bot. It costs a look into memory, and one into the
database where a word in it could be a code. It is kept for a while, and goes along with the next
message that is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import structlog
from cachetools import LRUCache

from bot.agent.running import RunningTurns
from bot.channel import Address, Heard, Inbound, Reaction
from bot.clock import DAY_MS
from bot.context.prompt import described
from bot.core import Core
from bot.delivery import outbox
from bot.errors import StorageError
from bot.i18n import language_of, text
from bot.identity import AccessDecision, Books, Conversation, ConversationResolver, MessageOrigin
from bot.identity.access import pointed
from bot.identity.routing import MAX_CHOSEN
from bot.sessions import approvals, inbox, links, pairing, rooms, store, zones
from bot.sessions.inbox import QueuedMessage
from bot.storage import Database, Transaction
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.upkeep import Upkeep

MAX_TOLD = 10_000  # rooms remembered as told; the database knows the others
MAX_HEARD = 30  # messages of one room
MAX_CHARS = 8_000  # of them together
MAX_TEXT = 2_000  # characters of one of them
MAX_NAME = 100  # characters of a name
MOST_WAITING = 1_000  # messages of one conversation that are looked at together
MAX_ROOMS = 2_000  # in which something was overheard

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Messages a turn may answer, and those that wait in the lane of another key from now on."""

    rows: tuple[QueuedMessage, ...]
    elsewhere: tuple[QueuedMessage, ...]


@dataclass(frozen=True, slots=True)
class Entered:
    """A message for the bot as it is taken, its conversation, and a time zone it reports as new."""

    inbound: Inbound
    conversation: Conversation
    zone: ZoneInfo | None


class Admission:
    """Lets messages in when they come, and again before their turn.

    What was known of a message when it came may not hold any more then: an account was joined or
    parted, a pairing revoked, a room moved, the configuration is another one.
    """

    def __init__(self, core: Core, committer: Committer) -> None:
        self._core = core
        self._committer = committer
        self._told: LRUCache[str, int] = LRUCache(MAX_TOLD)  # when each room was, or was asked
        self._overheard = Overheard()
        self._reactions = Overheard()

    # --- when a message comes ---------------------------------------------------------------------

    async def enter(self, inbound: Inbound) -> Entered | None:
        """Let a message in that is for the bot; None for everything else.

        In a room, what was said before it goes along.

        Raises:
            StorageError: the room could not be told that the bot does not talk there, or a code
                that was typed in it could not be made worthless.
        """
        inbound = timely(inbound, self._core.clock())
        conversation, result = self._core.resolver.resolve(inbound), "denied"
        verdict, declines = conversation.verdict, False
        if conversation.is_direct:
            if verdict in {AccessDecision.ALLOW, AccessDecision.PAIR}:
                return self._entered(inbound, conversation)
        else:
            await self._void_codes(inbound, conversation)
            if verdict is AccessDecision.ALLOW and conversation.is_addressed:
                return self._entered(inbound, conversation)
            listens = verdict in {AccessDecision.ALLOW, AccessDecision.LISTEN}
            no_talk = verdict in {AccessDecision.LISTEN, AccessDecision.DECLINE}
            declines = no_talk and pointed(inbound)
            result = "heard" if listens else "declined" if declines else "denied"
            if listens:
                self._overheard.hear(conversation.key, inbound)
        self._core.metrics.received.labels(inbound.channel, result).inc()
        if declines:
            await self._decline(conversation)
        return None

    def react(self, reaction: Reaction, conversation: Conversation, words: str) -> None:
        """Keep a reaction to a message of the bot's that begins with `words` for the next turn."""
        self._reactions.react(conversation.key, reaction, words)

    def _entered(self, inbound: Inbound, conversation: Conversation) -> Entered:
        """A message with what was overheard before it; commands leave that there."""
        zone = self._new_zone(inbound, conversation) if inbound.zone else None
        if conversation.command is None and conversation.is_served:
            key = conversation.key
            heard = (*inbound.heard, *self._overheard.take(key), *self._reactions.take(key))
            inbound = replace(inbound, heard=heard) if heard else inbound
        return Entered(inbound, conversation, zone)

    def give_back(self, inbound: Inbound, conversation: Conversation) -> None:
        """A message that was let in was not stored: keep what was to go with it."""
        for buffer, is_kept in ((self._overheard, False), (self._reactions, True)):
            taken = (each for each in inbound.heard if bool(each.reaction) is is_kept)
            buffer.give_back(conversation.key, taken)

    def _new_zone(self, inbound: Inbound, conversation: Conversation) -> ZoneInfo | None:
        """The time zone a message reports, if it is another one than before."""
        is_let_in = conversation.is_direct and conversation.verdict is AccessDecision.ALLOW
        if not is_let_in:
            return None
        zone = zones.named(inbound.zone)
        return None if zone == self._core.resolver.now.books.told.get(conversation.person) else zone

    # --- before its turn --------------------------------------------------------------------------

    async def admit(self, key: str, rows: Sequence[QueuedMessage]) -> Admitted:
        """Sort messages of one session into those to answer here and those to answer elsewhere."""
        kept: list[QueuedMessage] = []
        elsewhere: list[QueuedMessage] = []
        for row in rows:
            now = replace(row, conversation=self._core.resolver.renewed(row.conversation))
            if now.conversation.key != key:
                elsewhere += await self._rehomed(now)
            elif not now.conversation.is_served:
                await self._refuse(now)
            else:
                kept.append(now)
        return Admitted(tuple(kept), tuple(elsewhere))

    # ----------------------------------------------------------------------------------------------

    async def _void_codes(self, inbound: Inbound, conversation: Conversation) -> None:
        """Let no code be of use that everybody in the room has read."""
        typed, now = pairing.typed_code(inbound.shown), self._core.clock()
        if not typed:
            return

        def is_open(tx: Transaction) -> bool:
            return links.is_open(tx, typed, now) or pairing.is_open(tx, typed, now)

        # Many a word could be a code: only for one that is does anything have to be written.
        if not await self._core.database.read(is_open):
            return
        is_ours = conversation.verdict in {AccessDecision.ALLOW, AccessDecision.LISTEN}
        talks, language = is_ours and conversation.is_answered, conversation.language
        await self._committer.commit(
            now, lambda unit: void_codes(unit, typed, inbound, language, answers=talks)
        )
        log.info("code.void", channel=inbound.channel)

    async def _decline(self, conversation: Conversation) -> None:
        """Say once a day, and in the same words whatever the reason, that this is not possible."""
        origin, now = conversation.origin, self._core.clock()
        room = _whole_room(origin)
        key = self._core.resolver.of(room).key
        told = self._told.get(key)
        if told is not None and abs(now - told) < DAY_MS:
            return
        language = conversation.language
        words = text(language, "rooms.declined")

        def work(unit: UnitOfWork) -> bool:
            if not rooms.warn(unit.tx, key, now, DAY_MS):
                return False
            if conversation.verdict is AccessDecision.DECLINE:
                first = self._core.resolver.now.books.first(room.chat_ref)
                rooms.decline(unit.tx, key, replace(room, chat=first))
            unit.say(conversation.address, words, "notice", language=language)
            return True

        declined = (await self._committer.commit(now, work)).result
        self._told[key] = now
        if declined:
            # Whoever runs the bot needs the id to list the room.
            log.info("room.declined", channel=origin.channel, chat=origin.chat)

    async def _rehomed(self, row: QueuedMessage) -> Sequence[QueuedMessage]:
        place = row.conversation.place

        def work(unit: UnitOfWork) -> None:
            session, _ = unit.current(place)
            inbox.rehome(unit.tx, row.id, place.key, session.id)
            unit.queue(replace(row, key=place.key, session_id=session.id))

        return (await self._committer.commit(self._core.clock(), work, until_stored=True)).due

    async def _refuse(self, row: QueuedMessage) -> None:
        now = self._core.clock()
        await self._committer.commit(
            now, lambda unit: inbox.dismiss(unit.tx, row, now), until_stored=True
        )
        self._core.metrics.turns.labels("refused").inc()


def void_codes(
    unit: UnitOfWork, typed: frozenset[str], inbound: Inbound, language: str, *, answers: bool
) -> tuple[pairing.Pairing, ...]:
    """Make codes worthless that were `typed` where they do not belong, and say so.

    That is any in a room, and one for pairing in a direct chat: it is for the operator's command
    line. Whose codes they were is told, and with `answers` whoever typed them; those who had asked
    for pairing are returned.
    """
    is_room = inbound.chat_type != "direct"
    asked = pairing.void(unit.tx, typed, unit.now)
    offered = links.void(unit.tx, typed, unit.now) if is_room else []
    if answers and (asked or offered):
        words = text(language, "codes.in_room" if is_room else "codes.in_chat")
        unit.say(inbound.address, words, "notice", language=language)
    for made in offered:
        words = text(made.language, "codes.link_void", channel=inbound.channel)
        unit.say(made.address, words, "notice", language=made.language)
    for waiting in asked:
        if waiting.address != inbound.address:
            theirs = language_of(waiting.locale)
            words = text(theirs, "codes.pairing_void")
            unit.say(waiting.address, words, "notice", language=theirs)
    return tuple(asked)


def _whole_room(origin: MessageOrigin) -> MessageOrigin:
    """The room that something was said in: its threads and topics are one room with it."""
    if origin.parent:
        return replace(origin, chat=origin.parent, chat_type="channel", thread="")
    return replace(origin, thread="")


class Dismissals:
    """Ends what is under way for whoever may not talk any more, however that came about.

    What runs ends at once; what waits for an answer or to be sent is dropped for good, so that
    nothing old comes when they are let in again.
    """

    def __init__(self, core: Core, running: RunningTurns, upkeep: Upkeep) -> None:
        self._core = core
        self._running = running
        self._upkeep = upkeep
        self._changed = asyncio.Event()
        core.resolver.on_change(self._look)

    def _look(self) -> None:
        self._running.review(self._core.resolver.is_served)
        self._upkeep.review()
        self._changed.set()

    async def keep(self) -> None:
        """Drop what waits, whenever others are served than before."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.sweep()
            except StorageError as error:  # each message is looked at again when its turn comes
                log.warning("dismissals.failed", error=type(error).__name__)

    async def sweep(self) -> None:
        """Drop what waits for whoever is not served.

        Raises:
            StorageError: it could not be.
        """
        rows = await self._core.database.read(self._refused)
        chats = await self._core.database.read(self._left)
        if not rows and not chats:
            return
        now = self._core.clock()

        def drop(tx: Transaction) -> int:
            for row in rows:
                inbox.dismiss(tx, row, now)
            approvals.tidy_started(tx)
            return sum(outbox.withdraw_all(tx, address, now) for address in chats)

        unsent = await self._core.database.write(drop)
        log.info("dismissals.dropped", messages=len(rows), unsent=unsent)

    def _refused(self, tx: Transaction) -> list[QueuedMessage]:
        """The messages that wait and whose people are not served."""
        found = [
            row
            for key in inbox.waiting_keys(tx)
            for row in inbox.waiting(tx, key, MOST_WAITING, self._core.resolver.resolve)
        ]
        return [row for row in found if row.is_readable and not row.conversation.is_served]

    def _left(self, tx: Transaction) -> list[Address]:
        """The direct chats to which something is to be sent and whose people are not served."""
        sessions = ((each, store.direct_at(tx, each)) for each in outbox.unsent_addresses(tx))
        return [
            address
            for address, session in sessions
            if session and not self._core.resolver.serves(session.person, session.origin)
        ]


# --- what is overheard ----------------------------------------------------------------------------


class Overheard:
    """Recent messages in each room that were not for the bot. In memory only, and bounded."""

    def __init__(self) -> None:
        self._rooms: LRUCache[str, deque[tuple[str, Heard]]] = LRUCache(MAX_ROOMS)

    def __len__(self) -> int:
        return len(self._rooms)

    def hear(self, key: str, inbound: Inbound) -> None:
        """Keep what was said in the room of a session key; an edit takes the place of its text."""
        text = _cut(inbound.shown or described(inbound.media), MAX_TEXT)
        name = _cut(inbound.sender_name or inbound.sender, MAX_NAME)
        said = Heard(name, text, inbound.sent_at, inbound.media)
        lines = self._rooms.setdefault(key, deque())
        ids = (inbound.message_id, inbound.edit_of)
        for index, (id_, before) in enumerate(lines):
            if id_ and id_ in ids:  # a second copy, or another text for it
                lines[index] = (id_, replace(before, text=text, media=inbound.media))
                break
        else:
            lines.append((inbound.message_id, said))
        _shorten(lines)

    def react(self, key: str, reaction: Reaction, words: str) -> None:
        """Keep a reaction, or drop it if it was taken away before anybody was shown it."""
        id_ = _cut(f"{reaction.sender} {reaction.message_id} {reaction.emoji}", MAX_TEXT)
        lines = self._rooms.setdefault(key, deque())
        for index in [index for index, (known, _) in enumerate(lines) if known == id_]:
            del lines[index]
        if not reaction.is_removed:
            name, emoji = _cut(reaction.sender_name, MAX_NAME), _cut(reaction.emoji, MAX_NAME)
            said = Heard(name, _cut(words, MAX_NAME), reaction.at, reaction=emoji)
            lines.append((id_, said))
            _shorten(lines)

    def take(self, key: str) -> tuple[Heard, ...]:
        """All that was overheard in a room, the oldest first; it is kept no longer."""
        return tuple(said for _, said in self._rooms.pop(key, ()))

    def give_back(self, key: str, heard: Iterable[Heard]) -> None:
        """Keep again what was taken for a message that was not stored."""
        before = deque(("", said) for said in heard)
        if before:
            before.extend(self._rooms.pop(key, ()))
            _shorten(before)
            self._rooms[key] = before


def _shorten(lines: deque[tuple[str, Heard]]) -> None:
    """Let the oldest go until what is left is within the bounds."""
    size = sum(len(said.text) for _, said in lines)
    while len(lines) > MAX_HEARD or size > MAX_CHARS:
        size -= len(lines.popleft()[1].text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- the books ------------------------------------------------------------------------------------


def read_books(tx: Transaction) -> Books:
    """The books as the database has them."""
    return Books(
        links=tuple(links.everything(tx)),
        paired=frozenset((p.channel, p.account, p.sender) for p in pairing.approved(tx)),
        blocked=frozenset(each.seat for each in pairing.blocked(tx)),
        chosen=dict(reversed(rooms.activations(tx, MAX_CHOSEN).items())),
        moved=rooms.moved(tx),
        admitted=rooms.admitted(tx),
        zones=zones.everything(tx),
        told=zones.told(tx),
    )


async def chat_moved(
    database: Database, resolver: ConversationResolver, now: int, address: Address, chat: str
) -> None:
    """A chat has another id now: its conversation and its memory go along.

    Raises:
        StorageError: it could not be noted: offer it again later.
    """
    first = resolver.now.books.first((address.channel, address.account, address.chat))
    chat_ref = (address.channel, address.account, chat)
    await database.write(lambda tx: rooms.move(tx, chat_ref, first, now))
    resolver.moved(chat_ref, first)
    log.info("room.moved", channel=address.channel)


def timely(inbound: Inbound, now: int) -> Inbound:
    """The message, sent now if the platform's own date is none that can be: 0, or in future."""
    is_sound = 0 < inbound.sent_at <= now + DAY_MS
    return inbound if is_sound else replace(inbound, sent_at=now)
