"""The engine as channels see it: receive, store, allow, route, queue.

`receive` is one transaction: the message, who may talk, which session it belongs to and whether
that session has just ended by itself. What is to be answered is put down in it, and woken once it
is on disk.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from zoneinfo import ZoneInfo

import structlog

from bot import fencing
from bot.channel import (
    Address,
    Command,
    Health,
    HistoryItem,
    Inbound,
    Media,
    ModelChoice,
    Reaction,
)
from bot.commands.commander import Commander, TurnStops, menu
from bot.commands.conversation import ModelChoices
from bot.coordination import Event, account_name
from bot.core import Core
from bot.delivery import outbox
from bot.errors import FenceLost, OutOfSight, StorageError
from bot.fencing import Fence
from bot.gateway.admission import Admission, Entered, chat_moved, void_codes
from bot.gateway.lanes import Lanes
from bot.i18n import text
from bot.identity import AccessDecision, Conversation, MessageOrigin, Parsed
from bot.sessions import branches, inbox, pairing, repeats, reset, store, uploads, zones
from bot.sessions.browsing import history_of, text_of
from bot.sessions.inbox import QueuedMessage
from bot.sessions.repeats import Repeat
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.storage.records import MetaStore
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import resets
from bot.upkeep.compaction import undo_button
from bot.upkeep.upkeep import Upkeep

MOST_REASONS = 50  # for which a channel leaves something out; others are counted as one
LONGEST_REASON = 40  # characters of it
OTHER = "other"
_NO_WORD = re.compile(r"[^a-z_]+")

log = structlog.get_logger(__name__)


class Connections:
    """The connections to platforms: whose they are, how they are doing, what they left out."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.coordination.on("show", lambda event: self._heard(event.name, event.body))
        self._latest: dict[tuple[str, str], tuple[Health, str]] = {}
        # The reasons of each channel: a metric keeps every one for good.
        self._reasons: dict[str, set[str]] = {}

    def report(self, channel: str, account: str, health: Health, detail: str) -> None:
        """Keep the latest word of a connection, and log when its health changed."""
        before = self._latest.get((channel, account))
        self._latest[channel, account] = (health, detail)
        if before is None or before[0] is not health:
            log.info(
                "channel.health",
                channel=channel,
                account=account,
                health=health.value,
                detail=detail,
            )

    def forget(self, channel: str) -> None:
        """A channel was stopped: say nothing of its connections."""
        for key in [key for key in self._latest if key[0] == channel]:
            del self._latest[key]

    def all(self) -> list[tuple[str, str, Health, str]]:
        """Channel, account, health and detail of each connection, in order of name."""
        return [(*key, *value) for key, value in sorted(self._latest.items())]

    def dropped(self, channel: str, reason: str) -> None:
        """Count one update of a channel, whatever it calls its reason."""
        word = _NO_WORD.sub("_", reason.lower())[:LONGEST_REASON] or OTHER
        known = self._reasons.setdefault(channel, set())
        if word not in known and len(known) >= MOST_REASONS:
            word = OTHER
        elif word != OTHER:
            known.add(word)
        self._core.metrics.received.labels(channel, f"dropped_{word}").inc()

    def owning(self, channel: str, account: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Be the only program that listens for an account; see `bot.channel.Engine.owning`."""
        return self._core.coordination.owning(account_name(Address(channel, account, "")))

    def own_fence(self) -> Fence | None:
        """The fence behind which this node writes what it does by itself."""
        return self._core.coordination.own_fence()

    async def broadcast(self, channel: str, body: str, *, stored: bool) -> None:
        """Have a channel show something on every node; see `bot.channel.Engine.broadcast`."""
        await self._heard(channel, body)
        tell = self._core.coordination.publish if stored else self._core.coordination.mention
        try:
            await tell(Event("show", channel, body))
        except StorageError as error:
            log.warning("channel.not_shown", channel=channel, error=type(error).__name__)

    async def _heard(self, name: str, body: str) -> None:
        channel = self._core.channels.get(name)
        if channel is not None:
            await channel.heard(body)


class Gateway:
    """`bot.channel.Engine` for every channel of the program."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        *,
        admission: Admission,
        commander: Commander,
        stops: TurnStops,
        lanes: Lanes,
        upkeep: Upkeep,
        connections: Connections,
        choices: ModelChoices,
        reach: Callable[[Address, str], None],
        sent: Mapping[tuple[str, str, str, str], tuple[str, str]],
    ) -> None:
        """`sent` is what was sent lately; see `Delivery`."""
        self._admission = admission
        self._core = core
        self._commander = commander
        self._stops = stops
        self._lanes = lanes
        self._upkeep = upkeep
        self._connections = connections
        self._committer = committer
        self._choices = choices
        self._reach = reach
        self._sent = sent
        self._kept = MetaStore(core.database, core.clock)

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            OutOfSight: the message that it `replaces` is not in the conversation any more.
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        entered = await self._admission.enter(inbound)
        if entered is not None:
            # A caller that gives up (a request that was broken off) must not leave a stored message
            # that nobody answers.
            await asyncio.shield(self._take(entered))

    async def _take(self, entered: Entered) -> None:
        conversation, zone = entered.conversation, entered.zone
        inbound, body = inbox.storable(entered.inbound)
        command = await self._commander.command_in(inbound, conversation)
        code = pairing.new_code() if conversation.verdict is AccessDecision.PAIR else ""
        try:
            # In the transaction: what is stored, and with it what is to be answered.
            commit = await self._committer.commit(
                self._core.clock(),
                partial(
                    _store,
                    inbound=inbound,
                    body=body,
                    conversation=conversation,
                    code=code,
                    zone=zone,
                    is_command=command is not None,
                ),
            )
        except (StorageError, OutOfSight):
            self._admission.give_back(inbound, conversation)
            raise
        if commit.result == "replaced":  # before its own turn can begin
            await self._stops.stop(conversation.key)
        # After the commit: what is to be answered is woken.
        self._core.metrics.received.labels(inbound.channel, commit.result).inc()
        if zone is not None:
            self._core.resolver.told_zone(conversation.person, zone)
        if commit.ended:
            self._upkeep.flush_ended(commit.ended)
        if not commit.due:
            self._admission.give_back(inbound, conversation)
        elif code and not conversation.is_paired:
            # Another process has just let them in; the books are read again only now and then.
            self._core.resolver.admitted(inbound.channel, inbound.account, inbound.sender)
        for stored in commit.due:
            message = replace(stored, conversation=self._core.resolver.renewed(stored.conversation))
            # A command is answered now, beside a running turn.
            rest = await self._answered(message, command) if command is not None else message
            if rest is not None:
                await self._lanes.put(rest)

    async def _answered(self, message: QueuedMessage, command: Parsed) -> QueuedMessage | None:
        """Answer a command; what is left for its lane is returned.

        It is stored: were it offered again it would be a copy. So if it cannot be answered now,
        its lane tries until it can.
        """

        def hand_over(unit: UnitOfWork) -> None:
            # Whoever took this node's work over may have done that, or know nothing of a message
            # that was stored after it.
            if inbox.hand_over(unit.tx, message.id):
                unit.queue(message)

        try:
            with fencing.behind(self._connections.own_fence()):
                return await self._commander.run(message, command)
        except FenceLost:  # this node was given up meanwhile, and what it was answering taken over
            log.warning("command.fenced", channel=message.inbound.channel)
            await self._committer.commit(self._core.clock(), hand_over, until_stored=True)
            return None
        except StorageError as error:
            log.warning(
                "command.later", channel=message.inbound.channel, error=type(error).__name__
            )
        except Exception:
            log.exception("command.failed", channel=message.inbound.channel)

        def wait(unit: UnitOfWork) -> None:
            inbox.bind(unit.tx, message.id, message.session_id, message.inbound)
            unit.queue(message)

        await self._committer.commit(self._core.clock(), wait, until_stored=True)
        return message

    async def reacted(self, reaction: Reaction) -> None:
        """Note a reaction to one of the bot's messages; see `Engine.reacted`."""
        at, kind = reaction.address, reaction.chat_type
        sent = self._sent.get((at.channel, at.account, at.chat, reaction.message_id))
        thread, entry = sent or (at.thread, "")
        conversation = self._core.resolver.of(
            MessageOrigin(
                *(at.channel, at.account, at.chat, kind, reaction.sender, thread),
                *(reaction.parent, reaction.server),
            )
        )
        is_ours = sent is not None or reaction.from_bot or conversation.is_direct
        if not is_ours or not reaction.emoji or not conversation.is_served:
            return self.dropped(at.channel, "reaction")
        try:
            said = await self._core.database.read(lambda tx: text_of(tx, entry)) if entry else ""
        except StorageError:  # what it said is not known then
            said = ""
        self._admission.react(reaction, conversation, said)
        return None

    async def chat_moved(self, address: Address, chat: str) -> None:
        """A chat has another id now: its conversation and its memory go along.

        Raises:
            StorageError: it could not be noted: offer it again later.
        """
        await chat_moved(
            self._core.database, self._core.resolver, self._core.clock(), address, chat
        )

    async def history(
        self, address: Address, limit: int, before: str = ""
    ) -> Sequence[HistoryItem]:
        """Up to `limit` lines of the current conversation there, the newest or those before."""
        key = self._key_at(address)
        return await self._core.database.read(
            lambda tx: history_of(tx, key, address, limit, before)
        )

    def _key_at(self, address: Address) -> str:
        where = (address.channel, address.account, address.chat, "direct", address.chat)
        return self._core.resolver.of(MessageOrigin(*where, address.thread)).key

    async def switch(self, address: Address, message_id: str) -> bool:
        """Go on from another version of a turn; see `Engine.switch`."""
        key = self._key_at(address)

        def work(unit: UnitOfWork) -> bool:
            session = store.current(unit.tx, key)
            if session is not None and store.is_awaited(unit.tx, session):
                return False
            if session is None or not branches.switch(unit.tx, session, message_id):
                raise OutOfSight
            _seen_anew(unit, session)
            return True

        return (await self._committer.commit(self._core.clock(), work)).result

    async def withdraw(self, address: Address, message_id: str) -> bool:
        """Have a message not be answered, unless it is the next of its conversation."""
        now = self._core.clock()
        return await self._core.database.write(
            lambda tx: inbox.withdraw(tx, address, message_id, now)
        )

    async def last_seen(self, channel: str, account: str) -> Mapping[str, str]:
        """The newest stored message id of each chat, to catch up after a downtime."""
        return await self._core.database.read(lambda tx: inbox.last_seen(tx, channel, account))

    async def keep(self, channel: str, account: str, name: str, text: str) -> None:
        """Keep a small text of a channel's own, until an empty one takes its place.

        Raises:
            StorageError: it could not be stored.
        """
        key = f"channel/{channel}/{account}/{name}"
        await (self._kept.set(key, text) if text else self._kept.forget(key))

    async def kept(self, channel: str, account: str) -> Mapping[str, str]:
        """The small texts an account of a channel keeps, by name."""
        return await self._kept.under(f"channel/{channel}/{account}/")

    async def put_file(self, address: Address, media: Media, part: int, data: bytes) -> bool:
        """Keep one part of a file; see `Engine.put_file`."""
        now = self._core.clock()

        def put(tx: Transaction) -> bool:
            uploads.prune(tx, now)
            return uploads.put(tx, address, media, part, data, now=now)

        return await self._core.database.write(put)

    async def files(self, address: Address) -> Mapping[str, Media]:
        """The files of an address that are there, by ref."""
        return await self._core.database.read(lambda tx: uploads.whole(tx, address))

    async def file(self, address: Address, ref: str) -> bytes | None:
        """The bytes of a file; None when it is not there."""
        return await self._core.database.read(lambda tx: uploads.read(tx, address, ref))

    async def drop_file(self, address: Address, ref: str) -> None:
        """Keep a file no longer."""
        await self._core.database.write(lambda tx: uploads.drop(tx, address, ref))

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        return menu(locale)

    async def models(self, address: Address, sender: str) -> ModelChoice:
        """The model that answers a person in a direct chat, and the others they may choose."""
        return await self._choices.at(address, sender)

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing."""
        self._connections.report(channel, account, health, detail)

    def dropped(self, channel: str, reason: str) -> None:
        """Count an update that is nothing for the engine; `reason` is one word."""
        self._connections.dropped(channel, reason)

    def owning(self, channel: str, account: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Be the only program that listens for an account, where many nodes run."""
        return self._connections.owning(channel, account)

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """Have a channel show something on every node, this one first. Never raises."""
        await self._connections.broadcast(channel, body, stored=stored)

    def reach(self, address: Address, words: str) -> None:
        """Tell a person who is away that this was written to them. Returns at once."""
        self._reach(address, words)


def _store(
    unit: UnitOfWork,
    *,
    inbound: Inbound,
    body: str,
    conversation: Conversation,
    code: str,
    zone: ZoneInfo | None,
    is_command: bool,
) -> str:
    """Store a message and have it answered, if it may be; what became of it, in a word."""
    place, language = conversation.place, conversation.language
    row = inbox.store(unit.tx, inbound, body, place.key, unit.now, is_command=is_command)
    if row is None:
        return "duplicate"
    # What was said in a room was looked at before.
    typed = pairing.typed_code(inbound.shown) if conversation.is_direct else frozenset[str]()
    void = void_codes(unit, typed, inbound, language, answers=True) if typed else ()
    if code:
        if any(waiting.is_from(inbound) for waiting in void):
            inbox.refuse(unit.tx, row, unit.now, "unpaired")  # the next message brings a new one
            return "unpaired"
        asked = pairing.ask(unit.tx, inbound, code, unit.now)
        if not asked.approved:
            inbox.refuse(unit.tx, row, unit.now, "unpaired")
            if asked.code:
                words = text(language, "pairing.code", code=code, channel=inbound.channel)
                unit.say(inbound.address, words, "notice", language=language)
            return "unpaired"
    if not is_command and not conversation.is_answered:
        inbox.refuse(unit.tx, row, unit.now, "silenced")
        return "refused"
    if zone is not None:
        _live_in(unit, conversation, zone)
    _bring_late(unit, inbound, language)
    session, is_ending = _session_of(unit, inbound, conversation, is_command=is_command)
    inbox.bind(unit.tx, row, session.id)
    queued = QueuedMessage(row, place.key, session.id, inbound, conversation)
    if is_command:  # it is answered at once, where it came in
        unit.due.append(queued)
    else:
        unit.queue(queued)
    return "replaced" if is_ending else "queued"


def _session_of(
    unit: UnitOfWork, inbound: Inbound, conversation: Conversation, *, is_command: bool
) -> tuple[Session, bool]:
    """The session of a message, from where it goes on; and True if a turn is to end for it.

    One that `replaces` another goes on where that was said, even if it was over. A message that
    only waits for the answers before it is withdrawn: nothing came of it.

    Raises:
        OutOfSight: what it `replaces` is not in the conversation that goes on.
    """
    place = conversation.place
    if not inbound.replaces or is_command:
        session, reason = resets.arrive(unit, conversation.snapshot, place, is_command=is_command)
        if reason is not None:
            _tell_of_reset(unit, session, inbound, conversation.language, reason)
        return session, False
    session, _ = unit.current(place)
    is_ending = False
    if not inbox.withdraw(unit.tx, inbound.address, inbound.replaces, unit.now):
        is_ending = store.is_awaited(unit.tx, session)
        unit.mirror += branches.put_away(unit.tx, session, unit.now)
        if not branches.begin(unit.tx, session, inbound.replaces, inbound.message_id):
            log.info("branch.out_of_sight", channel=inbound.channel, session=session.id)
            raise OutOfSight
        _seen_anew(unit, session)
        log.info("branch.begun", channel=inbound.channel, session=session.id, ending=is_ending)
    store.point(unit.tx, session.key, session.id, unit.now)
    store.heard(unit.tx, session.id, unit.now)
    unit.refresh(session.id)
    return session, is_ending


def _seen_anew(unit: UnitOfWork, session: Session) -> None:
    """Another branch of a session is in sight: have it read again, and send nothing of the last."""
    outbox.withdraw_of(unit.tx, session.id, unit.now, where="unseen")
    unit.refresh(session.id)
    unit.stale.add(session.id)


def _bring_late(unit: UnitOfWork, inbound: Inbound, language: str) -> None:
    """Send what could not be delivered before, now that somebody can be reached there."""
    late = outbox.reached(unit.tx, inbound.address)
    if late:
        unit.letters.extend(late)
        words = text(language, "delivery.late", count=len(late))
        unit.say(inbound.address, words, "notice", language=language, asker=late[-1].asker)


def _live_in(unit: UnitOfWork, conversation: Conversation, zone: ZoneInfo) -> None:
    """Keep where somebody's browser is; what comes again goes by that, if they chose no zone."""
    person, snapshot = conversation.person, conversation.snapshot
    zones.tell(unit.tx, person, zone, unit.now)
    told = {**snapshot.books.told, person: zone}
    after = replace(snapshot, books=replace(snapshot.books, told=told))

    def zone_of(repeat: Repeat) -> ZoneInfo:
        return after.zone_of(person) if repeat.origin.chat_type == "direct" else after.policy.zone

    repeats.retime(unit.tx, zone_of, unit.now, after.names_of(person))


def _tell_of_reset(
    unit: UnitOfWork, fresh: Session, inbound: Inbound, language: str, reason: reset.Reason
) -> None:
    receipt = text(language, f"receipt.{reason}")
    before = store.get(unit.tx, fresh.previous) if fresh.previous else None
    if before is not None and before.saved:
        receipt = f"{receipt} {text(language, 'receipt.saved', where=before.saved)}"
    unit.say(
        inbound.address,
        receipt,
        "receipt",
        language=language,
        noted_in=fresh.id,
        asker=inbound.asker,
        extra=replace(undo_button(language), begins=inbound.message_id),
    )
    log.info("session.reset", reason=reason, channel=inbound.channel, session=fresh.id)
