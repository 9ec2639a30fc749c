"""Urgent findings, which the owner is told in their chat.

Each node checks what it sees itself, and one of them tells, in the transaction that notes it: at
most once a day, also across restarts. No message text is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import tzinfo
from functools import partial
from typing import Final

import orjson
import structlog

from bot.channel import Finding, Health
from bot.clock import DAY_MS, to_the_minute
from bot.config import BackupConfig, Config
from bot.core import Core
from bot.doctor import storage
from bot.errors import StorageError
from bot.health import Check, Outage, Readiness
from bot.i18n import language_of, text
from bot.identity.conversation import local_zone
from bot.identity.routing import OWNER, OWNER_SEATS
from bot.sessions import repeats, store
from bot.sessions.store import Session
from bot.storage import Transaction, backup_state
from bot.storage.backup_state import BackupState
from bot.storage.records import drop, from_json, keep, value_of, values_under
from bot.unit_of_work import Committer, UnitOfWork
from bot.views.outcomes import named, told

LOOK_SECONDS: Final = 60.0
FIRST_SECONDS: Final = 300.0  # a start makes a backup first, and connects
LATELY_MS: Final = 3_600_000  # for which something is wrong before somebody is told
SEEN_MS: Final = 10 * 60_000  # what nobody has seen down for so long is not down any more
MINUTE_MS: Final = 60_000
MOST_CHATS: Final = 50  # of the owner's, the latest

_HERE: Final = frozenset(channel for channel, _ in OWNER_SEATS)  # seen only by who looks there

_TOLD: Final = "urgent.told"
_DOWN: Final = "urgent.down:"  # and the account
_OUTAGE: Final = "urgent.outage:"  # and the node that saw one

Connections = Callable[[], Sequence[tuple[str, str, Health, str]]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Down:
    """An account that cannot be reached: since when, and when that was last seen (ms)."""

    account: str
    since: int
    seen: int

    def is_long(self, now: int) -> bool:
        """True when it is worth telling."""
        return now - self.since >= LATELY_MS and now - self.seen <= SEEN_MS


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The last message: its time (ms), and all tasks ever told."""

    at: int = 0
    tasks: tuple[int, ...] = ()

    def is_recent(self, now: int) -> bool:
        """True for a day, before or after, as a node's clock may be wrong."""
        return abs(now - self.at) < DAY_MS


@dataclass(frozen=True, slots=True)
class UrgentMessage:
    """Findings to tell in a chat, and what is noted then."""

    chat: Session
    language: str
    findings: tuple[Finding, ...]
    told: LastMessage


class Urgent:
    """Checks every minute, and tells the owner at most once a day."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        connections: Connections,
        report: Callable[[], Awaitable[Readiness]],
    ) -> None:
        """`report` returns the state of all parts of this node."""
        self._core = core
        self._committer = committer
        self._connections = connections
        self._report = report
        self._outage: Outage | None = None  # not read yet
        self._begun = core.clock()

    async def look(self) -> bool:
        """Note what is down, and tell what is urgent; True if the owner was told now.

        Raises:
            StorageError: it was not stored; the next look tries again.
        """
        now = self._core.clock()
        is_told = await self._tell_of_outage(now)  # first: what follows needs the database
        gone = [
            f"{channel}/{account}"
            for channel, account, health, _ in self._connections()
            if health in {Health.DOWN, Health.STARTING}
        ]
        if gone or await self._core.database.read(downs):
            await self._core.database.write(partial(_note_downs, gone=gone, now=now))
        if (await self._core.database.read(_last)).is_recent(now):
            return is_told
        # A backup that was due long before is made after the start, which may take a while.
        looked = partial(
            _here, self._core.resolver.policy.config, now, is_new=now - self._begun < LATELY_MS
        )
        plan = partial(self._plan, here=await asyncio.to_thread(looked), now=now)
        if await self._core.database.read(plan) is None:
            return is_told
        return (await self._committer.commit(now, partial(_tell, plan=plan))).result or is_told

    async def _tell_of_outage(self, now: int) -> bool:
        """Tell once that the bot cannot do its work, and once that it can again; True if told now.

        What cannot be told because the database is away or there is no chat is told later.

        Raises:
            StorageError: it was not stored; the next look tries again.
        """
        report = await self._report()
        if self._outage is None:
            self._outage = Outage()
            with suppress(StorageError):  # it is away: what was told before the start is not known
                self._outage = await self._core.database.read(_outage) or self._outage
        down = report.of("down")
        outage = self._outage = self._outage.after(tuple(each.name for each in down), now)
        if not outage.is_due(now):
            return False

        def tell(unit: UnitOfWork) -> bool:
            chat, place = self._chat(unit.tx, ()), f"{_OUTAGE}{unit.tx.node}"
            after = outage if chat is None else outage.told()
            if after.is_told or chat is None:
                keep(unit.tx, place, orjson.dumps(asdict(after)).decode(), now)
            else:
                drop(unit.tx, place)
            if chat is None:
                return False
            language = self._language(chat)
            said = of_outage(outage, down, language, local_zone(self._core.resolver.policy.config))
            unit.say(chat.address, said, "notice", language=language)
            return True

        if not (await self._committer.commit(now, tell)).result:
            return False
        self._outage = outage.told()
        log.info("urgent.outage", is_down=outage.is_down, parts=outage.parts)
        return True

    def _language(self, chat: Session) -> str:
        wanted = self._core.resolver.policy.config.agent.language
        return language_of(chat.locale if wanted == "auto" else wanted)

    def _plan(self, tx: Transaction, here: Sequence[Finding], now: int) -> UrgentMessage | None:
        """The findings to tell and the chat; None if there is nothing to tell."""
        last, config = _last(tx), self._core.resolver.policy.config
        if last.is_recent(now):  # another node was first
            return None
        long = [each for each in downs(tx) if each.is_long(now)]
        found, tasks = [*here, *_of_downs(long, now)], tuple(repeats.paused(tx))
        found += _copies(backup_state.read(tx), config.backup, now)
        if new := set(tasks) - set(last.tasks):
            found.append(Finding.of("error", "messages.paused", count=len(new)))
        chat = self._chat(tx, {each.account for each in long}) if found else None
        if chat is None:
            return None
        return UrgentMessage(chat, self._language(chat), tuple(found), LastMessage(now, tasks))

    def _chat(self, tx: Transaction, down: Collection[str]) -> Session | None:
        """The owner's direct chat: on a platform rather than the page, one that can be reached."""
        chats = [each for each in store.directs(tx, OWNER, MOST_CHATS) if self._is_owners(each)]

        def rank(chat: Session) -> tuple[bool, bool]:
            is_here = chat.channel in _HERE
            return f"{chat.channel}/{chat.account}" in down, is_here

        return min(chats, key=rank, default=None)  # the latest of those that are alike

    def _is_owners(self, chat: Session) -> bool:
        """True while whoever wrote there is the owner, and may."""
        found = self._core.resolver.of(chat.origin)
        return found.key == chat.key and found.is_owner and found.is_admitted


def _here(config: Config, now: int, *, is_new: bool) -> list[Finding]:
    """Errors of this machine's storage folder, if that is in use."""
    if config.storage.url is not None:
        return []
    copies = () if is_new else tuple(storage.backups_of_database(config.storage, now))
    return [each for each in (*storage.space(config), *copies) if each.level == "error"]


def _copies(state: BackupState, config: BackupConfig, now: int) -> list[Finding]:
    """Errors of full backups; one that failed just now is retried first."""
    is_short = now - state.made.failing_since < LATELY_MS
    return [
        each
        for each in storage.backups_of_everything(state, config, now)
        if each.level == "error" and not (is_short and each.id == "backups.all_failing")
    ]


def _tell(unit: UnitOfWork, plan: Callable[[Transaction], UrgentMessage | None]) -> bool:
    found = plan(unit.tx)
    if found is None:
        return False
    said = words(found.findings, found.language)
    unit.say(found.chat.address, said, "notice", language=found.language)
    keep(unit.tx, _TOLD, orjson.dumps(asdict(found.told)).decode(), found.told.at)
    log.info("urgent.told", findings=[each.id for each in found.findings])
    return True


def words(findings: Sequence[Finding], language: str) -> str:
    """The message to the owner. Pure."""
    lines = [text(language, "urgent.head")]
    for each in findings:
        said = told(each, language)
        lines.append(f"• {said.text}" + (f"\n  → {said.fix}" if said.fix else ""))
    return "\n".join([*lines, text(language, "urgent.more")])


def of_outage(outage: Outage, down: Sequence[Check], language: str, zone: tzinfo) -> str:
    """The message to the owner that an outage began or is over. Pure."""
    if not outage.is_down and not outage.is_told:
        begin, end = (to_the_minute(at, zone) for at in (outage.began, outage.since))
        parts = ", ".join(named(language, each) for each in outage.parts)
        return text(language, "urgent.could_not", begin=begin, end=end, parts=parts)
    lines: list[str] = []
    for each in down:
        said = told(each.finding, language)
        lines += [f"• {named(language, each.name)}: {said.text}", f"  → {said.fix}"]
    key = "urgent.cannot" if outage.is_down else "urgent.can_again"
    return text(language, key, parts="\n".join(lines))


def _outage(tx: Transaction) -> Outage | None:
    return value_of(tx, f"{_OUTAGE}{tx.node}", partial(from_json, Outage))


def downs(tx: Transaction) -> list[Down]:
    """Every account that was last seen down."""
    found = values_under(tx, _DOWN, _times)
    return [Down(name, since, seen) for name, (since, seen) in found.items()]


def _times(text: str) -> tuple[int, int]:
    since, seen = map(int, text.split())
    return since, seen


def _note_downs(tx: Transaction, gone: Sequence[str], now: int) -> None:
    """Note which accounts this program sees down; delete those nobody sees down any more."""
    known = {each.account: each for each in downs(tx)}
    for account in gone:
        before = known.get(account)
        is_same = before is not None and now - before.seen <= SEEN_MS
        since = min(before.since, now) if before is not None and is_same else now
        keep(tx, f"{_DOWN}{account}", f"{since} {now}", now)
    for account, each in known.items():
        if account not in gone and now - each.seen > SEEN_MS:
            drop(tx, f"{_DOWN}{account}")


def _of_downs(found: Sequence[Down], now: int) -> list[Finding]:
    return [
        Finding.of(
            "error",
            "connections.down",
            name=each.account.removesuffix("/default"),
            minutes=(now - each.since) // MINUTE_MS,
        )
        for each in found
        if each.is_long(now)
    ]


def _last(tx: Transaction) -> LastMessage:
    return value_of(tx, _TOLD, partial(from_json, LastMessage)) or LastMessage()
