"""Telling people how full their conversation is, also when it became so without a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.agent.prefix import name_of
from bot.channel import Button, Channel
from bot.context import report
from bot.context.report import Report
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.sessions import store
from bot.sessions.store import Session
from bot.storage import Database
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.active_session import ActiveSession, ActiveSessions, Fill
from bot.upkeep.usage import report_of

LATELY_MS = 7 * 86_400_000  # who wrote before that is told with their next turn


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told when a conversation gets full; `level` is the percentage it has passed."""

    level: int
    words: str
    extra: Extra


def notice(made: Report, language: str, *, level: int, buttons: bool, remembers: bool) -> Notice:
    """The notice for a level; commands are spelled out where there are no buttons.

    It says what a new conversation would begin with, where it `remembers` anything.
    """
    words = text(
        language,
        "notice.full",
        percent=made.percent,
        used=report.grouped(made.used),
        limit=report.grouped(made.budget.compact_above),
        parts=report.brief(made, language),
    )
    along = text(language, "notice.along" if remembers else "notice.along_nothing")
    words = f"{words}\n\n{along}"
    if not buttons:
        words = f"{words} {text(language, 'notice.full_how')}"
    commands = {"compact": "/compact", "new": "/new", "later": "/notices later"}
    pressed = (Button(text(language, f"button.{k}"), command) for k, command in commands.items())
    return Notice(level, words, Extra(tuple(pressed)))


class NoticeSweep:
    """Tells of conversations that became nearly full without a turn, once for each level.

    That is when their model got a smaller window, or another model answers them.
    """

    def __init__(
        self,
        *,
        sessions: ActiveSessions,
        database: Database,
        committer: Committer,
        channels: Mapping[str, Channel],
    ) -> None:
        self._sessions = sessions
        self._database = database
        self._committer = committer
        self._channels = channels

    async def sweep(self, now: int) -> int:
        """Tell everybody who is to be told at `now` (ms since the epoch); how many there were.

        Raises:
            StorageError: the disk did not take it; the next sweep tells the rest.
        """
        count, config = 0, self._sessions.resolver.policy.config.context
        levels = sorted((level for level in config.notice_percent if level > 0), reverse=True)
        for model in await self._database.read(store.open_models) if levels else ():
            limits = await self._sessions.limits.of(model)
            for level in levels:
                used = -(-level * limits.budget.compact_above // 100)
                found = await self._database.read(
                    lambda tx, m=model, u=used, n=level: store.filling(tx, m, u, n, now - LATELY_MS)
                )
                for session in found:
                    count += await self._tell(session, level, now)
        return count

    async def _tell(self, session: Session, level: int, now: int) -> bool:
        active = await self._sessions.resumed(session)
        channel = self._channels.get(session.channel)
        if channel is None or not self._may_tell(active):
            return False
        conversation, language = active.conversation, active.conversation.language
        fill = Fill(session.context_tokens, active.fill().fixed)
        made = notice(
            report_of(active, name_of(conversation.view), fill),
            language,
            level=level,
            buttons=channel.capabilities.buttons,
            remembers=bool(conversation.view.space),
        )

        def work(unit: UnitOfWork) -> bool:
            current = store.current(unit.tx, session.key)
            if current is None or current.id != session.id or current.ended_by:
                return False
            # A turn that ended meanwhile has told of it, or has made room.
            if current.told >= level or current.context_tokens != session.context_tokens:
                return False
            store.change(unit.tx, session.id, told=level)
            unit.say(
                conversation.address,
                made.words,
                "notice",
                noted_in=session.id,
                extra=made.extra,
                language=language,
            )
            unit.refresh(session.id)
            return True

        return (await self._committer.commit(now, work)).result

    def _may_tell(self, active: ActiveSession) -> bool:
        """True when it is still whose it was, may be answered there, and its person wants it."""
        conversation = active.conversation
        if not active.cached.session.sender or not active.is_theirs:
            return False
        if conversation.is_direct and not conversation.is_admitted:
            return False
        return conversation.is_answered and active.is_told
