"""A conversation as a person saw it, for channels that redraw it. Functions over a transaction."""

from __future__ import annotations

from bot.channel import Address, HistoryItem
from bot.sessions import entries, inbox
from bot.storage import Transaction

_HERE = "channel = ? AND account = ? AND chat = ? AND thread = ?"


def history_of(tx: Transaction, address: Address, limit: int) -> list[HistoryItem]:
    """The newest `limit` lines said at an address, across its conversations, oldest first.

    A divider stands where one conversation ends and another goes on; what has no answer yet comes
    last.
    """
    place = (address.channel, address.account, address.chat, address.thread)
    rows = tx.execute(
        "SELECT entries.session_id, line FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        f"WHERE {_HERE} ORDER BY seq DESC LIMIT ?",
        (*place, limit),
    )
    items: list[HistoryItem] = []
    session = ""
    for session_id, line in reversed(rows):
        entry = entries.parse(line)
        if not entry.text or entry.kind == "compaction":
            continue
        if session and session_id != session:
            items.append(HistoryItem(f"{entry.id}.divider", "divider", "", entry.at))
        session = session_id
        role = "user" if entry.role == "user" else "bot"
        items.append(HistoryItem(entry.source or entry.id, role, entry.text, entry.at))
    unanswered = tx.execute(
        f"SELECT body FROM inbox WHERE {_HERE} AND state = 'waiting' ORDER BY id", place
    )
    for (body,) in unanswered:
        inbound = inbox.read_back(body)
        if inbound is not None:
            items.append(HistoryItem(inbound.message_id, "user", inbound.shown, inbound.sent_at))
    return items[-limit:]
