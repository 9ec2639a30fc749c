"""The engine as channels see it: receive, store, allow, route, queue.

`receive` is one transaction: the message, who may talk, which session it belongs to and whether
that session has just ended by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from bot.channel import Address, Command, Health, HistoryItem, Inbound
from bot.clock import Clock
from bot.commands.menu import menu
from bot.gateway import access, inbox, pairing
from bot.gateway.commander import Commander
from bot.gateway.health import HealthBoard
from bot.gateway.history import history_of
from bot.gateway.inbox import Waiting
from bot.gateway.lanes import Lanes
from bot.gateway.ledger import Draft, Ledger
from bot.gateway.people import People
from bot.i18n import text
from bot.metrics import Metrics
from bot.sessions import reset, store
from bot.sessions.entries import NewEntry
from bot.sessions.store import Place, Session
from bot.storage import Database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What became of a message; `waiting` is what is to be answered."""

    result: str
    waiting: Waiting | None = None


class Gateway:
    """`bot.channel.Engine` for every channel of the program."""

    def __init__(
        self,
        *,
        people: People,
        commander: Commander,
        lanes: Lanes,
        health: HealthBoard,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._people = people
        self._commander = commander
        self._lanes = lanes
        self._health = health
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        inbound, body = inbox.storable(inbound)
        verdict = access.decide(
            self._people.channel(inbound), inbound, is_owner=self._people.is_owner(inbound)
        )
        if verdict is access.Verdict.DENY:
            self._count(inbound, "denied")
            return
        # A caller that gives up (a request that was broken off) must not leave a stored message
        # that nobody answers.
        await asyncio.shield(self._take(inbound, body, verdict))

    async def _take(self, inbound: Inbound, body: str, verdict: access.Verdict) -> None:
        place = self._people.place(inbound)
        parsed = self._commander.parse(inbound, place.key)
        code = pairing.new_code() if verdict is access.Verdict.PAIR else ""
        stored = await self._ledger.write(
            self._clock(),
            lambda draft: self._store(
                draft, inbound, body, place, code, is_command=parsed is not None
            ),
        )
        self._count(inbound, stored.result)
        message = stored.waiting
        if message is not None and parsed is not None:  # now, beside a running turn
            message = await self._commander.run(message, parsed)
        if message is not None:
            await self._lanes.put(message)

    async def history(self, address: Address, limit: int) -> Sequence[HistoryItem]:
        """The newest `limit` lines of this address's conversations, oldest first."""
        return await self._database.read(lambda tx: history_of(tx, address, limit))

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        return menu(locale)

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing."""
        self._health.report(channel, account, health, detail)

    def _store(
        self,
        draft: Draft,
        inbound: Inbound,
        body: str,
        place: Place,
        code: str,
        *,
        is_command: bool,
    ) -> _Stored:
        row = inbox.store(draft.tx, inbound, body, place.key, draft.now, is_command=is_command)
        if row is None:
            return _Stored("duplicate")
        if code:
            asked = pairing.ask(draft.tx, inbound, code, draft.now)
            if not asked.approved:
                inbox.refuse(draft.tx, row, draft.now)
                if asked.code:
                    draft.say(inbound.address, self._pairing_words(inbound, code), "notice")
                return _Stored("unpaired")
        session, is_new = draft.current(place)
        if not is_new and not is_command:
            session = self._reset_if_expired(draft, session, inbound, place)
        inbox.bind(draft.tx, row, session.id)
        return _Stored("queued", Waiting(row, place.key, session.id, inbound))

    def _reset_if_expired(
        self, draft: Draft, session: Session, inbound: Inbound, place: Place
    ) -> Session:
        """The session to go on with: this one, or a new one when this one is over."""
        if session.turns == 0:
            return session
        policy = reset.policy_for(self._people.config.session.reset, place.channel, place.chat_type)
        began = store.taken_up_at(draft.tx, place.key)
        times = reset.SessionTimes(began, session.last_user_at)
        reason = reset.expired(policy, times, draft.now, self._people.zone)
        if reason is None:
            return session
        fresh = draft.start(place, by=reason, previous=session, model=session.model)
        receipt = text(self._people.language(inbound), f"receipt.{reason}")
        noted = draft.append(fresh.id, [NewEntry("notice", "assistant", receipt)])
        draft.say(inbound.address, receipt, "receipt", entry=noted)
        log.info("session.reset", reason=reason, channel=place.channel, session=fresh.id)
        return fresh

    def _pairing_words(self, inbound: Inbound, code: str) -> str:
        language = self._people.language(inbound)
        return text(language, "pairing.code", code=code, channel=inbound.channel)

    def _count(self, inbound: Inbound, result: str) -> None:
        self._metrics.received.labels(inbound.channel, result).inc()
