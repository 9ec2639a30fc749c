"""What in the database belongs to one person, table by table. Functions over a transaction.

Somebody is known by their canonical identity and by every other name that theirs may be kept under
("ada", "telegram:42"). What several people said in a room is in `bot.sessions.speakers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bot.identity import Seat
from bot.identity.view import folder_name
from bot.storage import Transaction, Value

WEB = "web"  # the channel in which the people of the page have their names
CHANNEL_KEPT = "channel/"  # what the keys of `meta` begin with that channels keep something under

Condition = tuple[str, tuple[Value, ...]]
"""What follows WHERE, and its values."""

# Tables in which nothing is anybody's alone: what is in them goes by other rules.
NOBODYS = frozenset({"rooms", "moved_chats", "meta", "prefix_texts", "schema_versions"})


@dataclass(frozen=True, slots=True)
class Belongings:
    """Somebody, by all their names, the canonical one first.

    `sessions` are the ids of their direct conversations, and `chats` where these take place
    (channel, account, chat).
    """

    names: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    chats: tuple[tuple[str, str, str], ...] = ()

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The accounts among their names."""
        return tuple((name.partition(":")[0], name.partition(":")[2]) for name in self._accounts)

    @property
    def _accounts(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if ":" in name)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of notes that are, or were, theirs; not those of the owner."""
        return tuple(f"people/{folder_name(name)}" for name in self.names)


def of(tx: Transaction, names: Iterable[str]) -> Belongings:
    """Somebody's, with accounts joined to theirs and the names they have on the page."""
    known = dict.fromkeys(names)
    while True:
        found = Belongings(tuple(known))
        more = dict.fromkeys((*_joined(tx, found.seats), *_page_names(tx, found.seats)))
        if more.keys() <= known.keys():
            break
        known |= more
    where, values = _direct(found.names)
    sessions = tx.execute(f"SELECT id FROM sessions WHERE {where} ORDER BY started_at, id", values)
    spot = "SELECT DISTINCT channel, account, chat FROM"
    spots = tx.execute(f"{spot} sessions WHERE {where}", values)
    for table in ("pairing", "links"):
        seated, seats = _at(found.seats)
        spots += tx.execute(f"{spot} {table} WHERE {seated}", seats)
    return Belongings(
        found.names,
        tuple(str(row[0]) for row in sessions),
        tuple(dict.fromkeys((str(a), str(b), str(c)) for a, b, c in spots)),
    )


def conditions(found: Belongings) -> dict[str, Condition]:
    """Which rows of each table are somebody's; of those that others hang on, last."""
    direct, names = _direct(found.names)
    theirs = f"session_id IN (SELECT id FROM sessions WHERE {direct})"
    of_entries = f"seq IN (SELECT seq FROM entries WHERE {theirs})"
    person = within("person", found.names)
    at, seats = _at(found.seats)
    rooted, roots = _at(found.seats, "root_channel", "root_sender")
    here, chats = _among("channel, account, chat", found.chats)
    asked, askers = _at(found.seats, "channel", "asker")
    on_page = within("person", [sender for channel, sender in found.seats if channel == WEB])
    named = within("name", on_page[1])
    planned = f"repeat IN (SELECT id FROM repeats WHERE {person[0]})"
    return {
        "conversations": (theirs, names),
        "forgotten": (of_entries, names),
        "hidden": (of_entries, names),
        "prefixes": (theirs, names),
        "artifacts": (theirs, names),
        "titles": (theirs, names),
        "approvals": (f"{theirs} OR {at}", (*names, *seats)),
        "inbox": (f"{theirs} OR {here}", (*names, *chats)),
        "outbox": (f"{here} OR {asked}", (*chats, *askers)),
        "uploads": (here, chats),
        "pairing": (at, seats),
        "blocks": (at, seats),
        "links": (f"{at} OR {rooted}", (*seats, *roots)),
        "link_codes": (f"{person[0]} OR {rooted}", (*person[1], *roots)),
        "reminders": person,
        "repeat_runs": (planned, person[1]),
        "repeats": person,
        "zones": person,
        "told_zones": person,
        "limit_notices": person,
        "push_subscriptions": person,
        "usage_counts": (f"{person[0]} OR {theirs}", (*person[1], *names)),
        "page_links": _or(on_page, within("asker", found.names)),
        "page_logins": on_page,
        "page_people": (f"{named[0]} OR {at}", (*named[1], *seats)),
        "note_versions": within("space", found.spaces),
        "forgotten_spaces": within("space", found.spaces),
        "claim_uses": within("space", found.spaces),
        "entries": (theirs, names),
        "sessions": (direct, names),
    }


def counts(tx: Transaction, found: Belongings) -> dict[str, int]:
    """How many rows of each table are somebody's; tables that hold none are left out."""
    told: dict[str, int] = {}
    for table, (where, values) in conditions(found).items():
        number = int(tx.execute(f"SELECT count(*) FROM {table} WHERE {where}", values)[0][0])
        if number:
            told[table] = number
    return told


def rows(
    tx: Transaction, found: Belongings, table: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Some columns of somebody's rows of a table, in the order of the first ones."""
    where, values = conditions(found)[table]
    read = tx.execute(
        f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY {', '.join(columns[:2])}",
        values,
    )
    return [dict(zip(columns, row, strict=True)) for row in read]


def channel_keys(tx: Transaction, found: Belongings) -> list[str]:
    """The keys of what channels keep about somebody's direct chats."""
    told: list[str] = []
    rows_ = tx.execute(
        "SELECT key FROM meta WHERE substr(key, 1, ?) = ?", (len(CHANNEL_KEPT), CHANNEL_KEPT)
    )
    chats = {chat for _, _, chat in found.chats}
    for (key,) in rows_:
        name = str(key).split("/", 3)[-1]
        if not chats.isdisjoint(name.replace(":", " ").split(" ")):
            told.append(str(key))
    return told


def _joined(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    (at, one), (rooted, other) = _at(seats), _at(seats, "root_channel", "root_sender")
    found = tx.execute(
        f"SELECT channel, sender, root_channel, root_sender FROM links WHERE {at} OR {rooted}",
        (*one, *other),
    )
    return [f"{row[n]}:{row[n + 1]}" for row in found for n in (0, 2)]


def _page_names(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    at, values = _at(seats)
    return [
        f"{WEB}:{row[0]}" for row in tx.execute(f"SELECT name FROM page_people WHERE {at}", values)
    ]


def _direct(names: Sequence[str]) -> Condition:
    where, values = within("person", names)
    return f"chat_type = 'direct' AND {where}", values


def _at(seats: Sequence[Seat], channel: str = "channel", sender: str = "sender") -> Condition:
    return _among(f"{channel}, {sender}", seats)


def within(column: str, values: Sequence[Value]) -> Condition:
    """Rows that have one of these values, of which there may be none."""
    return f"{column} IN ({', '.join('?' * len(values))})" if values else "1 = 0", tuple(values)


def _among(columns: str, values: Sequence[tuple[str, ...]]) -> Condition:
    if not values:
        return "1 = 0", ()
    one = " AND ".join(f"{column} = ?" for column in columns.split(", "))
    return f"({' OR '.join([f'({one})'] * len(values))})", tuple(v for each in values for v in each)


def _or(one: Condition, other: Condition) -> Condition:
    return f"({one[0]} OR {other[0]})", (*one[1], *other[1])
