"""A conversation as a person saw it, for channels that redraw it. Functions over a transaction."""

from __future__ import annotations

from bot.channel import Address, HistoryItem
from bot.sessions import entries
from bot.storage import Transaction


def history_of(tx: Transaction, address: Address, limit: int) -> list[HistoryItem]:
    """The newest `limit` lines said at an address, across its conversations, oldest first.

    A divider stands where one conversation ends and another goes on.
    """
    rows = tx.execute(
        "SELECT entries.session_id, line FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        "WHERE channel = ? AND account = ? AND chat = ? AND thread = ? "
        "ORDER BY seq DESC LIMIT ?",
        (address.channel, address.account, address.chat, address.thread, limit),
    )
    items: list[HistoryItem] = []
    session = ""
    for session_id, line in reversed(rows):
        entry = entries.parse(line)
        if not entry.text:
            continue
        if session and session_id != session:
            items.append(HistoryItem(f"{entry.id}.divider", "divider", "", entry.at))
        session = session_id
        role = "user" if entry.role == "user" else "bot"
        items.append(HistoryItem(entry.id, role, entry.text, entry.at))
    return items
