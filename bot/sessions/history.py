"""What was said at an address, as whoever talks there saw it: a page draws it, and reads it back.

Plain functions over one transaction. An address's own conversations are read from the newest line
backwards, by index, so what others say costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bot.channel import Address, HistoryItem
from bot.sessions import browsing, entries, inbox
from bot.sessions.entries import Entry
from bot.sessions.uploads import refs_of
from bot.storage import Row, Transaction, scalar, scalars
from bot.storage.records import HERE, place

_END = 2**62  # beyond the number of every entry
FEWEST_LOOKED_AT = 50  # conversations among which the newest lines are looked for


def history_of(
    tx: Transaction, address: Address, limit: int, before: str = ""
) -> list[HistoryItem]:
    """Up to `limit` lines said at an address: the newest, or the last before a place; oldest first.

    `before` is the `HistoryItem.place` of a line. A divider stands where a conversation begins,
    unless it is the first of all. What has no answer yet comes last. Nobody saw how a task was
    carried out: what came of it stands in the conversation itself.
    """
    # Before one that is not there, nothing stands.
    number = "SELECT seq FROM entries WHERE id = ?"
    edge = (scalar(tx, number, before) or 0) if before else _END
    rows = _newest(tx, address, edge, limit)
    items = _items(tx, rows)
    while rows and not items:  # nothing but what tools did
        rows = _newest(tx, address, int(rows[-1][0]), limit)
        items = _items(tx, rows)
    if items:
        lowest = rows[-1]
        if items[0].role == "divider" and not _newest(tx, address, int(lowest[0]), 1):
            del items[0]
        items[0] = replace(items[0], place=entries.parse(lowest[1]).id)
    if not before:
        items += _unanswered(tx, address)
    return items


def _items(tx: Transaction, rows: Sequence[Row]) -> list[HistoryItem]:
    """The lines of some entries, which come newest first, and the dividers between them."""
    shown, gone = browsing.as_shown(tx, [row[:2] for row in reversed(rows)])
    first = {row[2]: int(row[0]) for row in rows}  # the lowest number of each session
    items: list[HistoryItem] = []
    begun: set[str] = set()
    for entry in browsing.in_order([each for each in shown if browsing.is_line(each, gone)]):
        session = entry.session_id
        if session not in begun:
            begun.add(session)
            if not browsing.has_lines_before(tx, session, first[session]):
                id_ = f"{entry.id}.divider"
                items.append(HistoryItem(id_, "divider", "", entry.said_or_at, entry.id))
        items.append(_item(entry))
    return items


def _item(entry: Entry) -> HistoryItem:
    role = "user" if entry.role == "user" else "bot"
    id_ = entry.source or entry.id
    at = entry.said_or_at
    return HistoryItem(id_, role, entry.shown, at, entry.id, entry.files, entry.failed)


def _newest(tx: Transaction, address: Address, edge: int, limit: int) -> list[Row]:
    """The newest entries below a number (number, line, session), the newest first."""
    heads = tx.execute(
        "SELECT id, (SELECT max(seq) FROM entries WHERE session_id = sessions.id "
        "AND seq >= sessions.first_seq AND seq < ?) FROM sessions "
        f"WHERE {HERE} AND started_by <> 'task' AND entry_count > 0 AND first_seq < ? "
        "ORDER BY last_user_at DESC LIMIT ?",
        (edge, *place(address), edge, max(2 * limit, FEWEST_LOOKED_AT)),
    )
    rows: list[Row] = []
    known = ((int(newest), id_) for id_, newest in heads if newest is not None)
    for newest, session_id in sorted(known, reverse=True):
        if len(rows) == limit and newest < rows[-1][0]:
            break
        rows += tx.execute(
            "SELECT seq, line, session_id FROM entries WHERE session_id = ? AND seq < ? "
            "ORDER BY seq DESC LIMIT ?",
            (session_id, edge, limit),
        )
        rows.sort(key=lambda row: int(row[0]), reverse=True)
        del rows[limit:]
    return rows


def _unanswered(tx: Transaction, address: Address) -> Iterator[HistoryItem]:
    waiting = f"SELECT body FROM inbox WHERE {HERE} AND state = 'waiting' ORDER BY id"
    for body in scalars(tx, waiting, *place(address)):
        inbound = inbox.read_back(body)
        if inbound is not None:
            files = refs_of(inbound)
            yield HistoryItem(
                inbound.message_id, "user", inbound.shown, inbound.sent_at, files=files
            )
