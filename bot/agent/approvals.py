"""Calls that wait for a person's word, as the transcript has them."""

from __future__ import annotations

from bot.agent.transcript import message_of
from bot.messages import Message, ToolUse
from bot.sessions import store
from bot.sessions.approvals import Question
from bot.storage import Transaction


def call_of(tx: Transaction, question: Question) -> ToolUse | None:
    """The call that a question is about; None when it was forgotten, or is too old to be there."""
    entry = store.entry(tx, question.entry)
    if entry is None:
        return None
    (seen,) = store.veiled(tx, question.session_id, [entry])
    use, left = (_call_in(message_of(each), question.call) for each in (entry, seen))
    return use if use == left else None  # what is left of one that was forgotten is another call


def _call_in(message: Message, id_: str) -> ToolUse | None:
    return next((b for b in message.blocks if isinstance(b, ToolUse) and b.id == id_), None)
