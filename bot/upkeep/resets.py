"""Ending conversations whose time is over: when it is, or at the latest with the next message.

Both ways ask the same pure function with the same values, and a command of its person closes a
conversation that is over as well. So it makes no difference to anybody when, or whether, the
scheduler came by; only memory is saved sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from bot.core import Core
from bot.identity import Place, PolicySnapshot
from bot.sessions import inbox, reset, store, unsaved
from bot.sessions.reset import Reason, SessionTimes
from bot.sessions.store import QuietSession, Session
from bot.storage import Transaction
from bot.unit_of_work import Committer, UnitOfWork

BATCH = 200  # sessions closed in one transaction, so that nobody's message waits for long

log = structlog.get_logger(__name__)


def arrive(
    unit: UnitOfWork, snapshot: PolicySnapshot, place: Place, *, is_command: bool
) -> tuple[Session, Reason | None]:
    """The session of a message, current or just begun, and why the one before is over, if it is.

    A command never begins one, but what is over when it comes is closed.
    """
    session, taken_up_at = unit.current(place)
    if max(session.last_user_at, taken_up_at) > unit.now + store.AHEAD_MS:
        store.bring_back(unit.tx, unit.now)
        session, taken_up_at = unit.current(place)
    session, reason = _closed_if_over(unit, snapshot, session, taken_up_at)
    if reason is not None and not is_command:
        session = unit.start(place, by=reason, previous=session, model=session.model)
    store.heard(unit.tx, session.id, unit.now)
    return session, None if is_command else reason


class Sweeper:
    """Closes what is over, and has `on_ended` save what matters of it.

    `on_ended` gets each session once it is closed, many at a time; what it raises is logged.
    """

    def __init__(
        self, core: Core, committer: Committer, on_ended: Callable[[Session], Awaitable[None]]
    ) -> None:
        self._core = core
        self._committer = committer
        self._on_ended = on_ended

    async def sweep(self, now: int) -> int:
        """Close every conversation that is over at `now`; how many there were.

        Raises:
            StorageError: the disk did not take all of it; the next sweep does the rest.
        """
        snapshot = self._core.resolver.now
        cut = reset.cut(snapshot.policy.config.session.reset, now, snapshot.zones)
        if cut is None:
            return 0

        def look(tx: Transaction) -> tuple[bool, list[str]]:
            found = store.silent(tx, cut)
            over = [each.id for each in found if _reason(snapshot, each, each.taken_up_at, now)]
            return store.is_ahead(tx, now), over

        is_ahead, over = await self._core.database.read(look)
        if is_ahead:
            brought = await self._core.database.write(lambda tx: store.bring_back(tx, now))
            log.warning("session.times_brought_back", sessions=brought)
        count = 0
        for first in range(0, len(over), BATCH):
            ids = over[first : first + BATCH]
            commit = await self._committer.commit(
                now, lambda unit, ids=ids: _close(unit, snapshot, ids)
            )
            count += len(commit.result)
            await asyncio.gather(*map(self._save, commit.result))
        return count

    async def _save(self, session: Session) -> None:
        try:
            await self._on_ended(session)
        except Exception as exc:  # noqa: BLE001 - the others still have to be saved
            # Only the kind: an exception's own words may hold what a person said.
            log.error(  # noqa: TRY400
                "session.end_failed", session=session.id, error=type(exc).__name__
            )


def ends_at(
    snapshot: PolicySnapshot, session: Session, taken_up_at: int
) -> tuple[int, Reason] | None:
    """The time a conversation is over if nothing more is said, and why; None for never."""
    ends = reset.policy_for(
        snapshot.policy.config.session.reset, session.channel, session.chat_type, session.chat
    )
    times = SessionTimes(taken_up_at, session.last_user_at)
    return reset.ends_at(ends, times, snapshot.zone_of(session.person))


def _close(unit: UnitOfWork, snapshot: PolicySnapshot, ids: Sequence[str]) -> list[Session]:
    """Close those that are still over: somebody may have written since they were looked for."""
    closed: list[Session] = []
    for id_ in ids:
        session = store.get(unit.tx, id_)
        if session is None or session.ended_by:
            continue
        here = store.taken_up(unit.tx, session.key)
        # Whoever waits for an answer is not silent, however long the answer takes.
        if here is None or here[0] != session or inbox.waiting_count(unit.tx, session.key):
            continue
        session, reason = _closed_if_over(unit, snapshot, *here)
        if reason is not None:
            closed.append(session)
    return closed


def _closed_if_over(
    unit: UnitOfWork, snapshot: PolicySnapshot, session: Session, taken_up_at: int
) -> tuple[Session, Reason | None]:
    """The current session of a key, and why it is over, if it is."""
    if session.ended_by in ("daily", "idle"):
        return session, session.ended_by
    if session.turns == 0:
        return session, None
    reason = _reason(snapshot, session, taken_up_at, unit.now)
    if reason is None:
        return session, None
    unit.change(session.id, ended_by=reason, ended_at=unit.now)
    unsaved.mark(unit.tx, session.id, unit.now)
    log.info("session.ended", reason=reason, channel=session.channel, session=session.id)
    return unit.sessions[session.id], reason


def _reason(
    snapshot: PolicySnapshot, session: Session | QuietSession, taken_up_at: int, now: int
) -> Reason | None:
    # The session's own channel and person: in one that joins several, anybody's message must find
    # what a sweep finds.
    ends = reset.policy_for(
        snapshot.policy.config.session.reset, session.channel, session.chat_type, session.chat
    )
    times = SessionTimes(taken_up_at, session.last_user_at)
    return reset.expired(ends, times, now, snapshot.zone_of(session.person))
