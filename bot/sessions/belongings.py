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
from bot.storage import Transaction, Value, marks, scalar, scalars
from bot.storage.meta import under
from bot.storage.tables import TABLES, Owner

WEB = "web"  # the channel in which the people of the page have their names
CHANNEL_KEPT = "channel/"  # what the keys of `meta` begin with that channels keep something under

Condition = tuple[str, tuple[Value, ...]]
"""What follows WHERE, and its values."""


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
        return tuple((name.partition(":")[0], name.partition(":")[2]) for name in self.accounts)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The names that are accounts: "telegram:42"."""
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
    theirs = f"SELECT id FROM sessions WHERE {where} ORDER BY started_at, id"
    spot = "SELECT DISTINCT channel, account, chat FROM"
    spots = tx.execute(f"{spot} sessions WHERE {where}", values)
    for table in ("pairing", "links"):
        seated, seats = _among("channel, sender", found.seats)
        spots += tx.execute(f"{spot} {table} WHERE {seated}", seats)
    return Belongings(
        found.names,
        tuple(scalars(tx, theirs, *values)),
        tuple(dict.fromkeys((a, b, c) for a, b, c in spots)),
    )


def conditions(found: Belongings, *, on_server: bool = False) -> dict[str, Condition]:
    """Which rows of each table are somebody's; of those that others hang on, last."""
    direct, names = _direct(found.names)
    theirs = f"session_id IN (SELECT id FROM sessions WHERE {direct})"
    person, person_names = within("person", found.names)
    on_page = tuple(sender for channel, sender in found.seats if channel == WEB)
    by: dict[Owner, Condition] = {
        "direct": (direct, names),
        "session": (theirs, names),
        "entry": (f"seq IN (SELECT seq FROM entries WHERE {theirs})", names),
        "person": (person, person_names),
        "repeat": (f"repeat IN (SELECT id FROM repeats WHERE {person})", person_names),
        "seat": _among("channel, sender", found.seats),
        "root": _among("root_channel, root_sender", found.seats),
        "chat": _among("channel, account, chat", found.chats),
        "asker": _among("channel, asker", found.seats),
        "space": within("space", found.spaces),
        "page person": within("person", on_page),
        "page asker": within("asker", found.names),
        "page name": within("name", on_page),
    }
    engines = {"", "postgres" if on_server else "sqlite"}
    return {
        table.name: _any([by[owner] for owner in table.owner])
        for table in TABLES
        if table.owner and table.engine in engines
    }


def counts(tx: Transaction, found: Belongings, *, on_server: bool = False) -> dict[str, int]:
    """How many rows of each table are somebody's; tables that hold none are left out."""
    told: dict[str, int] = {}
    for table, (where, values) in conditions(found, on_server=on_server).items():
        if number := scalar(tx, f"SELECT count(*) FROM {table} WHERE {where}", *values):
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
    chats = {chat for _, _, chat in found.chats}
    return [
        f"{CHANNEL_KEPT}{key}"
        for key in under(tx, CHANNEL_KEPT)
        if not chats.isdisjoint(key.split("/", 2)[-1].replace(":", " ").split(" "))
    ]


def _joined(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    where, values = _any(
        [_among("channel, sender", seats), _among("root_channel, root_sender", seats)]
    )
    columns = "channel, sender, root_channel, root_sender"
    found = tx.execute(f"SELECT {columns} FROM links WHERE {where}", values)
    return [f"{row[n]}:{row[n + 1]}" for row in found for n in (0, 2)]


def _page_names(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    at, values = _among("channel, sender", seats)
    names = scalars(tx, f"SELECT name FROM page_people WHERE {at}", *values)
    return [f"{WEB}:{name}" for name in names]


def _direct(names: Sequence[str]) -> Condition:
    where, values = within("person", names)
    return f"chat_type = 'direct' AND {where}", values


def within(column: str, values: Sequence[Value]) -> Condition:
    """Rows that have one of these values, of which there may be none."""
    return f"{column} IN ({marks(values)})" if values else "1 = 0", tuple(values)


def _among(columns: str, values: Sequence[tuple[str, ...]]) -> Condition:
    if not values:
        return "1 = 0", ()
    one = " AND ".join(f"{column} = ?" for column in columns.split(", "))
    return f"({' OR '.join([f'({one})'] * len(values))})", tuple(v for each in values for v in each)


def _any(of: Sequence[Condition]) -> Condition:
    return f"({' OR '.join(where for where, _ in of)})", tuple(v for _, each in of for v in each)
