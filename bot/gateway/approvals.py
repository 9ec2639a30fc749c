"""What a person has to allow first: asking them, and beginning what they allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.agent.tools.asking import DecidedCall, shown
from bot.agent.turn import call_of
from bot.channel import Button, Inbound
from bot.clock import Clock
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.messages import ToolUse
from bot.sessions import approvals
from bot.sessions.approvals import VALID_MS
from bot.sessions.inbox import QueuedMessage
from bot.storage import Database, Transaction
from bot.unit_of_work import UnitOfWork

MINUTE_MS = 60_000


class Approvals:
    """Begins what was allowed: each call once, whatever happens to the program then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, rows: Sequence[QueuedMessage]) -> tuple[DecidedCall, ...]:
        """The calls that these messages decide about, marked as begun before any of them is run.

        Raises:
            StorageError: that could not be noted, or another node answers these messages now.
        """
        answers = [row for row in rows if row.inbound.answers]
        if not answers:
            return ()
        now = self._clock()

        def work(tx: Transaction) -> list[DecidedCall]:
            found = [_decided(tx, row, now) for row in answers]
            return [each for each in found if each is not None]

        return tuple(await self._database.write(work))


def _decided(tx: Transaction, row: QueuedMessage, now: int) -> DecidedCall | None:
    found = approvals.begin(tx, row.inbound.answers, now)
    if found is None or found[0].session_id != row.session_id:
        return None
    question, verdict = found
    use = call_of(tx, question)
    if use is None:  # forgotten meanwhile
        return None
    return DecidedCall(
        replace(use, id=f"approved_{question.id}"), verdict, (row.conversation.rights,)
    )


def put(
    unit: UnitOfWork, inbound: Inbound, use: ToolUse, *, session_id: str, entry: str, language: str
) -> None:
    """Ask whoever wrote a message whether a call may be made; part of the turn's transaction."""
    asker = (inbound.channel, inbound.account, inbound.sender)
    question = approvals.ask(
        unit.tx, asker, unit.now, session_id=session_id, entry=entry, call=use.id
    )
    words = text(
        language,
        "approval.question",
        tool=use.name,
        arguments=shown(use.input),
        id=question.id,
        minutes=VALID_MS // MINUTE_MS,
    )
    buttons = tuple(
        Button(text(language, f"approval.{command}"), f"/{command} {question.id}")
        for command in ("allow", "deny")
    )
    unit.say(
        inbound.address,
        words,
        "notice",
        language=language,
        noted_in=session_id,
        asker=inbound.asker,
        reply_to=inbound.to_answer,
        extra=Extra(buttons=buttons),
    )
