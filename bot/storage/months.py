"""Transcripts in a partition a month: how the tables are laid out in PostgreSQL, and asked for.

Entries and their words are found by their number everywhere, so that is what the partitions are
ranges of: a number leads to one of them. Each month has room for `ROOM` numbers. When one begins,
the sequence goes on with the first number of its partition, which was made a month before; until
somebody sees to that, entries go into the one before. So a month is that in which something was
stored, by the server's clock; an insert never lacks a partition, and order never suffers.

Nodes may not make or drop tables. The functions here do it as the owner of the tables, for
whoever may add and delete entries, and no more than is asked for: a month is dropped by the number
of months to be kept, and never the one that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bot.clock import DAY_MS, moment
from bot.storage import Transaction, scalar, scalars

ROOM: Final = 1 << 40  # numbers in a month; every number of 680 years is exact in JSON too
AHEAD: Final = 1  # months that are made before they begin

# `month` is "2026-11" in UTC; its numbers are from `lowest` to below `above`. It goes on, or is
# over, once it has `begun_at`. `entries` and `sessions` are what there was when it was dropped.
_MONTHS = """CREATE TABLE entry_months(
    month TEXT PRIMARY KEY CHECK (month ~ '^[0-9]{4}-[0-9]{2}$'),
    lowest BIGINT NOT NULL, above BIGINT NOT NULL, made_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    begun_at TIMESTAMPTZ, dropped_at TIMESTAMPTZ,
    entries BIGINT NOT NULL DEFAULT 0, sessions BIGINT NOT NULL DEFAULT 0)"""

# Whoever asks could do as much by hand. `session_user` is who is connected; within these
# functions the current user is the owner of the tables.
_CHECK = """CREATE FUNCTION entries_check_caller() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'entries', 'INSERT')
        OR NOT has_table_privilege(session_user, 'entries', 'DELETE') THEN
        RAISE insufficient_privilege
            USING MESSAGE = 'permission denied for the months of table entries';
    END IF;
END $$"""

# The id of an entry is unique by how it is made; each month checks its own.
_ADD = """CREATE FUNCTION entries_add_month(named text, lowest bigint, above bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    said text := 'entries_' || replace(named, '-', '_');
    words text := 'entries_text_' || replace(named, '-', '_');
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE entries INCLUDING ALL, UNIQUE (id))', said);
    EXECUTE format('CREATE TABLE %I (LIKE entries_text INCLUDING ALL)', words);
    EXECUTE format('ALTER TABLE entries ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
        said, lowest, above);
    EXECUTE format('ALTER TABLE entries_text ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
        words, lowest, above);
    INSERT INTO entry_months(month, lowest, above) VALUES (named, lowest, above);
END $$"""

_LAY_OUT = """CREATE FUNCTION entries_lay_out(named text[], numbers bigint[], above bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    each record;
BEGIN
    PERFORM entries_check_caller();
    LOCK TABLE entries, entries_text IN ACCESS EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM entries) THEN
        RAISE object_in_use USING MESSAGE = 'there are entries already';
    END IF;
    FOR each IN SELECT replace(month, '-', '_') AS suffix FROM entry_months
        WHERE dropped_at IS NULL LOOP
        EXECUTE format('DROP TABLE %I, %I',
            'entries_text_' || each.suffix, 'entries_' || each.suffix);
    END LOOP;
    DELETE FROM entry_months;
    FOR i IN 1..cardinality(named) LOOP
        PERFORM entries_add_month(named[i], numbers[i], coalesce(numbers[i + 1], above));
    END LOOP;
    UPDATE entry_months SET begun_at = now();
END $$"""

# A month that was made just now may not be known to every connection yet. Nobody stores anything
# while a month begins, so that no turn is of two months. Who cannot have a lock at once comes
# again: behind a lock that is waited for, everybody would wait.
_NEXT = """CREATE FUNCTION entries_next_months(ahead integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
    today timestamp := now() AT TIME ZONE 'UTC';
    wanted text;
    newest record;
BEGIN
    PERFORM entries_check_caller();
    LOCK TABLE entry_months IN SHARE ROW EXCLUSIVE MODE;
    FOR i IN 0..ahead LOOP
        wanted := to_char(today + make_interval(months => i), 'YYYY-MM');
        SELECT * INTO newest FROM entry_months ORDER BY above DESC LIMIT 1;
        IF wanted > newest.month THEN
            PERFORM entries_add_month(wanted, newest.above, newest.above + {room});
            RETURN NEXT wanted;
        END IF;
    END LOOP;
    SELECT * INTO newest FROM entry_months WHERE month = to_char(today, 'YYYY-MM')
        AND begun_at IS NULL AND made_at < now() - interval '1 minute';
    IF FOUND THEN
        LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE;
        PERFORM setval('entries_number', greatest(newest.lowest, last_value + 1), false)
            FROM entries_number;
        UPDATE entry_months SET begun_at = now() WHERE month = newest.month;
    END IF;
END $$""".replace("{room}", str(ROOM))

# One day more, for what came before anybody saw to the new month.
_DUE = """CREATE FUNCTION entries_due_months(kept integer) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT month FROM entry_months WHERE kept > 0 AND dropped_at IS NULL
        AND month < (SELECT max(month) FROM entry_months WHERE begun_at IS NOT NULL)
        AND month < to_char((now() AT TIME ZONE 'UTC') - interval '1 day'
            - make_interval(months => kept), 'YYYY-MM')
    ORDER BY month
$$"""

# What nodes keep of its sessions in memory is out of date then, which their version says.
_DROP = """CREATE FUNCTION entries_drop_month(kept integer,
    OUT dropped text, OUT entries bigint, OUT sessions bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
    gone record;
    suffix text;
BEGIN
    PERFORM entries_check_caller();
    LOCK TABLE entry_months IN SHARE ROW EXCLUSIVE MODE;
    SELECT month, lowest, above INTO gone FROM entry_months
        WHERE month = (SELECT min(due) FROM entries_due_months(kept) AS due);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    dropped := gone.month;
    suffix := replace(dropped, '-', '_');
    EXECUTE format('SELECT count(*), count(DISTINCT session_id) FROM %I', 'entries_' || suffix)
        INTO entries, sessions;
    EXECUTE format('UPDATE sessions SET version = version + 1 WHERE ended_by = %L
        AND id IN (SELECT session_id FROM %I)', '', 'entries_' || suffix);
    DELETE FROM hidden WHERE seq >= gone.lowest AND seq < gone.above;
    DELETE FROM forgotten WHERE seq >= gone.lowest AND seq < gone.above;
    EXECUTE format('DROP TABLE %I, %I', 'entries_text_' || suffix, 'entries_' || suffix);
    UPDATE entry_months SET dropped_at = now(), entries = entries_drop_month.entries,
        sessions = entries_drop_month.sessions WHERE month = dropped;
END $$"""

FUNCTIONS: Final = (_CHECK, _ADD, _LAY_OUT, _NEXT, _DUE, _DROP)

# Before and after the empty tables are laid out by month.
TABLES: Final = (
    "ALTER TABLE entries RENAME TO entries_whole",
    "ALTER TABLE entries_text RENAME TO entries_text_whole",
    "CREATE TABLE entries(LIKE entries_whole) PARTITION BY RANGE (seq)",
    "CREATE TABLE entries_text(LIKE entries_text_whole) PARTITION BY RANGE (entry)",
    "CREATE SEQUENCE entries_number OWNED BY entries.seq",
    "ALTER TABLE entries ALTER COLUMN seq SET DEFAULT nextval('entries_number')",
    _MONTHS,
)
KEYS: Final = (
    "DROP TABLE entries_whole, entries_text_whole",
    "ALTER TABLE entries ADD PRIMARY KEY (seq)",
    "CREATE INDEX entries_by_session ON entries(session_id, seq)",
    "ALTER TABLE entries_text ADD PRIMARY KEY (entry, part)",
    "CREATE INDEX entries_text_words ON entries_text USING gin(words)",
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Of what is stored, the lowest number of each day (since the epoch, UTC), and the highest."""

    days: tuple[tuple[int, int], ...] = ()
    highest: int = 0


@dataclass(frozen=True, slots=True)
class Month:
    """A month of what was said. `size` is in bytes; both counts are 0 once it `is_dropped`."""

    name: str
    entries: int
    size: int
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """A month that was dropped, and how much was in it."""

    month: str
    entries: int
    sessions: int


def stored(tx: Transaction) -> Stored:
    """The days and numbers of all entries, in a database of either engine."""
    days = tx.execute(f"SELECT at / {DAY_MS} AS day, min(seq) FROM entries GROUP BY 1")
    return Stored(tuple(days), scalar(tx, "SELECT coalesce(max(seq), 0) FROM entries"))


def first_numbers(found: Stored, now: int) -> list[tuple[str, int]]:
    """The months of what was stored, oldest first, and the number each begins with. Pure.

    An entry is never of an earlier month than one before it, whatever date it has, and never of
    one that is still to come: where a clock was wrong for a while, what was stored stays longer
    rather than go too soon. The last month is that of `now`, in ms since the epoch.
    """
    lowest = {name_of(now): found.highest + 1}
    for day, number in found.days:
        name = name_of(min(day * DAY_MS, now))
        lowest[name] = min(number, lowest.get(name, number))
    begins: list[tuple[str, int]] = []
    for name in sorted(lowest, reverse=True):
        if not begins or lowest[name] < begins[-1][1]:
            begins.append((name, lowest[name]))
    begins[-1] = (begins[-1][0], min(0, begins[-1][1]))
    return begins[::-1]


def lay_out(tx: Transaction, found: Stored) -> None:
    """Make the months that this is to be stored in, instead of those there are, which are empty.

    Raises:
        StorageError: something is stored already.
    """
    now = scalar(tx, "SELECT (extract(epoch FROM now()) * 1000)::bigint")
    begins = first_numbers(found, now)
    tx.execute(
        "SELECT entries_lay_out(CAST(? AS text[]), CAST(? AS bigint[]), ?)",
        (
            _array(name for name, _ in begins),
            _array(number for _, number in begins),
            (found.highest // ROOM + 1) * ROOM,
        ),
    )


def see_to(tx: Transaction) -> list[str]:
    """Make the months to come that are missing, and let a new one begin; the names of the made.

    Raises:
        StorageError: the tables are in use, or their owner may not make any.
    """
    return scalars(tx, "SELECT entries_next_months(?)", AHEAD)


def due(tx: Transaction, kept: int) -> list[str]:
    """The months older than so many whole ones before this; 0 keeps all."""
    return scalars(tx, "SELECT entries_due_months(?)", kept)


def drop(tx: Transaction, kept: int) -> Dropped | None:
    """Drop the oldest month that is `due`; None when none is.

    Raises:
        StorageError: somebody else reads or drops it just now.
    """
    month, entries, sessions = tx.execute("SELECT * FROM entries_drop_month(?)", (kept,))[0]
    tx.execute("DELETE FROM unseen WHERE seq < (SELECT coalesce(min(seq), 0) FROM entries)")
    return None if month is None else Dropped(str(month), int(entries), int(sessions))


def listed(tx: Transaction) -> list[Month]:
    """Every month that has begun, oldest first."""
    rows = tx.execute(
        "SELECT month, lowest, above, dropped_at IS NOT NULL FROM entry_months "
        "WHERE begun_at IS NOT NULL ORDER BY month"
    )
    return [_month(tx, *row) for row in rows]


def last_dropped(tx: Transaction) -> str:
    """The newest month that was dropped; empty while none was."""
    return scalar(tx, "SELECT max(month) FROM entry_months WHERE dropped_at IS NOT NULL") or ""


def end_of(month: str) -> int:
    """The time a month was over, in ms since the epoch."""
    year, number = (int(part) for part in month.split("-"))
    after = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return int(after.timestamp() * 1000)


def name_of(at: int) -> str:
    """The month of a time in ms since the epoch."""
    return f"{moment(at, UTC):%Y-%m}"


def _month(tx: Transaction, name: str, lowest: int, above: int, is_dropped: bool) -> Month:  # noqa: FBT001 - a row's columns
    if is_dropped:
        return Month(name, 0, 0, is_dropped=True)
    suffix = name.replace("-", "_")
    entries, size = tx.execute(
        "SELECT (SELECT count(*) FROM entries WHERE seq >= ? AND seq < ?), "
        "(SELECT coalesce(sum(pg_total_relation_size(to_regclass(part))), 0) "
        "FROM unnest(CAST(? AS text[])) AS part)",
        (lowest, above, _array((f"entries_{suffix}", f"entries_text_{suffix}"))),
    )[0]
    return Month(name, int(entries), int(size), is_dropped=False)


def _array(values: Iterable[str | int]) -> str:
    """Values as PostgreSQL reads an array of them; none has a comma or a quote."""
    return "{" + ",".join(map(str, values)) + "}"
