"""The engine as channels see it: receive, store, allow, route, queue.

`receive` is one transaction: the message, who may talk, which session it belongs to and whether
that session has just ended by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from bot import codes
from bot.agent.turn import RunningTurns
from bot.channel import Address, Command, Health, HistoryItem, Inbound
from bot.clock import Clock
from bot.commands.menu import menu
from bot.errors import StorageError
from bot.gateway import pairing
from bot.gateway.books import chat_moved
from bot.gateway.commander import Commander
from bot.gateway.desk import HealthBoard
from bot.gateway.doors import RoomDoor, void_codes
from bot.gateway.lanes import Lanes
from bot.i18n import text
from bot.identity import Conversation, Directory, Parsed, Verdict
from bot.identity.message import is_abort
from bot.ledger import Draft, Ledger
from bot.metrics import Drops, Metrics
from bot.sessions import inbox, reset, store
from bot.sessions.inbox import Waiting
from bot.sessions.store import Session
from bot.storage import Database
from bot.storage.meta import MetaStore
from bot.upkeep import resets
from bot.upkeep.compaction import undo_button
from bot.upkeep.upkeep import Upkeep

log = structlog.get_logger(__name__)


class Gateway:
    """`bot.channel.Engine` for every channel of the program."""

    def __init__(
        self,
        *,
        directory: Directory,
        running: RunningTurns,
        commander: Commander,
        lanes: Lanes,
        room_door: RoomDoor,
        upkeep: Upkeep,
        health: HealthBoard,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._directory = directory
        self._running = running
        self._room_door = room_door
        self._upkeep = upkeep
        self._commander = commander
        self._lanes = lanes
        self._health = health
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._drops = Drops(metrics)
        self._kept = MetaStore(database, clock)

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        inbound = inbox.timely(inbound, self._clock())
        conversation = self._directory.resolve(inbound)
        if not conversation.is_direct:
            entered = await self._room_door.enter(inbound, conversation)
            if entered is None:
                return
            inbound = entered
        elif conversation.verdict not in {Verdict.ALLOW, Verdict.PAIR}:
            self._count(inbound, "denied")
            return
        # A caller that gives up (a request that was broken off) must not leave a stored message
        # that nobody answers.
        await asyncio.shield(self._take(inbound, conversation))

    async def chat_moved(self, address: Address, chat: str) -> None:
        """A chat has another id now: its conversation and its memory go along.

        Raises:
            StorageError: it could not be noted: offer it again later.
        """
        await chat_moved(self._database, self._directory, self._clock(), address, chat)

    async def _take(self, inbound: Inbound, conversation: Conversation) -> None:
        inbound, body = inbox.storable(inbound)
        command = conversation.command
        if command is None and not inbound.edit_of and is_abort(inbound.text):
            # Said alone it is a command only while a reply is being written.
            command = Parsed("stop") if conversation.key in self._running else None
        code = codes.new_code() if conversation.verdict is Verdict.PAIR else ""
        try:
            commit = await self._ledger.write(
                self._clock(),
                lambda draft: self._store(
                    draft, inbound, body, conversation, code, is_command=command is not None
                ),
            )
        except StorageError:
            self._room_door.give_back(inbound, conversation)
            raise
        self._count(inbound, commit.result)
        self._upkeep.ended(commit.ended)
        if not commit.due:
            self._room_door.give_back(inbound, conversation)
        if commit.due and code and not conversation.is_paired:
            # Another process has just let them in, and the books are read again only now and then.
            self._directory.admitted(inbound.channel, inbound.account, inbound.sender)
        for message in commit.due:
            due = message
            if conversation.generation is not self._directory.now:
                due = replace(message, conversation=self._directory.renewed(conversation))
            # A command is answered now, beside a running turn.
            rest = await self._answered(due, command) if command is not None else due
            if rest is not None:
                await self._lanes.put(rest)

    async def _answered(self, message: Waiting, command: Parsed) -> Waiting | None:
        """Answer a command; what is left for its lane is returned.

        It is stored: were it offered again it would be a copy. So if it cannot be answered now,
        its lane tries until it can.
        """
        try:
            return await self._commander.run(message, command)
        except StorageError as error:
            log.warning(
                "command.later", channel=message.inbound.channel, error=type(error).__name__
            )
        except Exception:
            log.exception("command.failed", channel=message.inbound.channel)
        await self._ledger.write(
            self._clock(),
            lambda draft: inbox.bind(draft.tx, message.id, message.session_id, message.inbound),
            must=True,
        )
        return message

    async def history(self, address: Address, limit: int) -> Sequence[HistoryItem]:
        """The newest `limit` lines of this address's conversations, oldest first."""
        return await self._database.read(lambda tx: inbox.history_of(tx, address, limit))

    async def last_seen(self, channel: str, account: str) -> Mapping[str, str]:
        """The newest stored message id of each chat, to catch up after a downtime."""
        return await self._database.read(lambda tx: inbox.last_seen(tx, channel, account))

    async def keep(self, channel: str, account: str, name: str, text: str) -> None:
        """Keep a small text of a channel's own, until an empty one takes its place.

        Raises:
            StorageError: it could not be stored.
        """
        key = f"channel/{channel}/{account}/{name}"
        await (self._kept.set(key, text) if text else self._kept.forget(key))

    async def kept(self, channel: str, account: str) -> Mapping[str, str]:
        """What an account of a channel keeps, by name."""
        return await self._kept.under(f"channel/{channel}/{account}/")

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        return menu(locale)

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing."""
        self._health.report(channel, account, health, detail)

    def dropped(self, channel: str, reason: str) -> None:
        """Count an update that is nothing for the engine; `reason` is one word."""
        self._drops.count(channel, reason)

    def _store(
        self,
        draft: Draft,
        inbound: Inbound,
        body: str,
        conversation: Conversation,
        code: str,
        *,
        is_command: bool,
    ) -> str:
        """Store a message and have it answered, if it may be; what became of it, in a word."""
        place, language = conversation.place, conversation.language
        row = inbox.store(draft.tx, inbound, body, place.key, draft.now, is_command=is_command)
        if row is None:
            return "duplicate"
        # What was said in a room was looked at before.
        void = void_codes(draft, inbound, language, answers=True) if conversation.is_direct else ()
        if code:
            if any(waiting.is_from(inbound) for waiting in void):
                inbox.refuse(draft.tx, row, draft.now)  # the next message brings a new one
                return "unpaired"
            asked = pairing.ask(draft.tx, inbound, code, draft.now)
            if not asked.approved:
                inbox.refuse(draft.tx, row, draft.now)
                if asked.code:
                    words = text(language, "pairing.code", code=code, channel=inbound.channel)
                    draft.say(inbound.address, words, "notice", language=language)
                return "unpaired"
        if not is_command and not conversation.is_answered:
            inbox.refuse(draft.tx, row, draft.now)
            return "refused"
        policy = conversation.generation.policy
        arrived = resets.arrive(draft, policy, place, is_command=is_command)
        session = arrived.session
        if arrived.reset is not None:
            _tell_of_reset(draft, session, inbound, language, arrived.reset)
        inbox.bind(draft.tx, row, session.id)
        draft.answer(Waiting(row, place.key, session.id, inbound, conversation))
        return "queued"

    def _count(self, inbound: Inbound, result: str) -> None:
        self._metrics.received.labels(inbound.channel, result).inc()


def _tell_of_reset(
    draft: Draft, fresh: Session, inbound: Inbound, language: str, reason: reset.Reason
) -> None:
    receipt = text(language, f"receipt.{reason}")
    before = store.get(draft.tx, fresh.previous) if fresh.previous else None
    if before is not None and before.saved:
        receipt = f"{receipt} {text(language, 'receipt.saved', where=before.saved)}"
    draft.tell(
        fresh.id,
        inbound.address,
        receipt,
        "receipt",
        language=language,
        asker=inbound.asker,
        extra=undo_button(language),
    )
    log.info("session.reset", reason=reason, channel=inbound.channel, session=fresh.id)
