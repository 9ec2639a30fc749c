"""`/allow` and `/deny`: answering whether a tool may be called."""

from __future__ import annotations

from bot.agent.approvals import call_of
from bot.commands.base import Answer, Apply, Call
from bot.i18n import text
from bot.sessions import approvals
from bot.sessions.approvals import Question
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.unit_of_work import UnitOfWork


class ApprovalCommands:
    """`/allow [ID]`, `/deny [ID]`: what the buttons of a question give."""

    async def allow(self, call: Call) -> Apply:
        """Let the call be made: it is begun by the turn of this message."""
        return self._decide(call, is_allowed=True)

    async def deny(self, call: Call) -> Apply:
        """Let it not be made; the model is told."""
        return self._decide(call, is_allowed=False)

    def _decide(self, call: Call, *, is_allowed: bool) -> Apply:
        inbound = call.inbound
        asker = (inbound.channel, inbound.account, inbound.sender)

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            found = _question(unit.tx, call, session, asker)
            if isinstance(found, str):
                return Answer(text(call.language, found))
            use = call_of(unit.tx, found)
            if use is None:
                return Answer(text(call.language, "approval.closed"))
            approvals.answer(unit.tx, found, call.now, is_allowed=is_allowed)
            said = "allowed" if is_allowed else "denied"
            return Answer(
                text(call.language, f"approval.{said}", tool=use.name),
                message=text(call.language, f"approval.said_{said}", tool=use.name),
                question=found.id,
            )

        return apply


def _question(
    tx: Transaction, call: Call, session: Session, asker: approvals.Asker
) -> Question | str:
    """The question that is answered, or the key of why none is."""
    id_ = call.rest.strip().lower()
    if not id_:
        waiting = approvals.open_in(tx, session.id, asker, call.now)
        return waiting[0] if len(waiting) == 1 else f"approval.{'which' if waiting else 'none'}"
    found = approvals.of_id(tx, id_)
    if found is None or found.session_id != session.id:
        return "approval.closed"
    if found.asker != asker:
        return "approval.not_yours"
    return found if found.is_open(call.now) else "approval.closed"
