"""The tables on PostgreSQL: made and migrated by one program at a time, whoever comes first.

A role that may not make tables can run the program once another has made them: where nothing is
missing, nothing is made.

Transcripts are in a partition a month. Entries and their words are found by their number
everywhere, so that is what the partitions are ranges of: a number leads to one of them. Each month
has room for `ROOM` numbers. When one begins, the sequence goes on with the first number of its
partition, which was made a month before; until somebody sees to that, entries go into the one
before. So a month is that in which something was stored, by the server's clock; an insert never
lacks a partition, and order never suffers.

Nodes may not make or drop tables. The functions here do it as the owner of the tables, for
whoever may add and delete entries, and no more than is asked for: a month is dropped by the number
of months to be kept, and never the one that goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

import structlog
from psycopg import errors as pg

from bot import __version__, errors
from bot.clock import DAY_MS, moment
from bot.invocation import confidant
from bot.storage import Transaction, scalar, scalars, schema
from bot.storage.postgres_sql import GRANTS, Connection, PostgresTransaction
from bot.storage.records import keep, text_of

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


# --- tables ---------------------------------------------------------------------------------------


# Times are milliseconds since the epoch, sizes are bytes. A note's `path` is below the workspace;
# `version` grows with each change.
_NOTES = (
    """CREATE TABLE IF NOT EXISTS notes(
        path TEXT PRIMARY KEY, space TEXT NOT NULL, version BIGINT NOT NULL, text TEXT NOT NULL,
        size BIGINT NOT NULL, made_at BIGINT NOT NULL, changed_at BIGINT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS notes_changed ON notes(changed_at)",
    # What was forgotten of late, by space: whoever began to read before must not write it. The
    # words are cleared once nobody can be at work who has read them; the last number stays.
    """CREATE TABLE IF NOT EXISTS forgettings(
        space TEXT NOT NULL, number BIGINT NOT NULL, words TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY(space, number))""",
    "CREATE INDEX IF NOT EXISTS forgettings_at ON forgettings(at) WHERE words <> ''",
)

# The one row of `memory_generations` says what the index is made with, and is live once every note
# was in it. Versions before built others beside it, so a partition names its own. `words` begins
# with a mark of its partition, so that one lookup in its index finds the words of that partition
# only.
_INDEX = (
    """CREATE TABLE IF NOT EXISTS memory_generations(
        id {serial}, is_live BIGINT NOT NULL, chunker BIGINT NOT NULL, provider TEXT NOT NULL,
        model TEXT NOT NULL, endpoint TEXT NOT NULL, dims BIGINT NOT NULL)""",
    """CREATE UNIQUE INDEX IF NOT EXISTS memory_generations_live ON memory_generations(is_live)
        WHERE is_live = 1""",
    """CREATE TABLE IF NOT EXISTS memory_partitions(
        id {serial}, generation BIGINT NOT NULL, name TEXT NOT NULL, chunks BIGINT NOT NULL,
        length BIGINT NOT NULL, UNIQUE(generation, name))""",
    """CREATE TABLE IF NOT EXISTS memory_sources(
        id {serial}, kind TEXT NOT NULL, partition BIGINT NOT NULL, name TEXT NOT NULL,
        space TEXT NOT NULL, path TEXT NOT NULL, hash BYTEA NOT NULL, mtime BIGINT NOT NULL,
        size BIGINT NOT NULL, inode BIGINT NOT NULL, at BIGINT NOT NULL, problem TEXT NOT NULL,
        text TEXT, UNIQUE(partition, kind, name))""",
    "CREATE INDEX IF NOT EXISTS memory_sources_name ON memory_sources(name)",
    """CREATE TABLE IF NOT EXISTS memory_chunks(
        id {serial}, source BIGINT NOT NULL, partition BIGINT NOT NULL, start_line BIGINT NOT NULL,
        end_line BIGINT NOT NULL, day BIGINT, length BIGINT NOT NULL, vectors BYTEA,
        heading TEXT NOT NULL, body TEXT NOT NULL, words tsvector NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS memory_chunks_source ON memory_chunks(source)",
    "CREATE INDEX IF NOT EXISTS memory_chunks_partition ON memory_chunks(partition)",
    "CREATE INDEX IF NOT EXISTS memory_chunks_words ON memory_chunks USING gin(words)",
    """CREATE INDEX IF NOT EXISTS memory_chunks_bare ON memory_chunks(partition, id)
        WHERE vectors IS NULL""",
    # The signs of a chunk's vectors, in narrow rows: a search looks through all of a partition's.
    """CREATE TABLE IF NOT EXISTS memory_signs(
        chunk BIGINT PRIMARY KEY, partition BIGINT NOT NULL, signs BIT VARYING NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS memory_signs_partition ON memory_signs(partition)",
    """CREATE TABLE IF NOT EXISTS memory_embeddings(
        identity BYTEA NOT NULL, hash BYTEA NOT NULL, dims BIGINT NOT NULL, used BIGINT NOT NULL,
        vector BYTEA NOT NULL, PRIMARY KEY(hash, identity))""",
    "CREATE INDEX IF NOT EXISTS memory_embeddings_used ON memory_embeddings(used)",
    "CREATE INDEX IF NOT EXISTS memory_chunks_day ON memory_chunks(partition, day)",
)

STATEMENTS = (*_NOTES, *_INDEX)


OLDEST = 150_000  # PostgreSQL 15
_LOCK: Final = 0x636F6E6669  # one program migrates, the others wait

_VERSIONS = (
    # Programs that know `compatible_from` may run on this version too.
    """CREATE TABLE IF NOT EXISTS schema_versions(
        version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL, compatible_from BIGINT NOT NULL,
        program TEXT COLLATE "C" NOT NULL DEFAULT '')""",
    # Tables beside those of every database: what made them, so that it is not done again.
    """CREATE TABLE IF NOT EXISTS schema_parts(
        name TEXT COLLATE "C" NOT NULL, digest TEXT NOT NULL, PRIMARY KEY(name, digest))""",
    # The last transaction of each program: whether one whose COMMIT got no answer is there. Much
    # room in each block lets a row be changed in place.
    """CREATE TABLE IF NOT EXISTS writers(
        id TEXT COLLATE "C" PRIMARY KEY, batch BIGINT NOT NULL,
        at TIMESTAMPTZ NOT NULL DEFAULT now()) WITH (fillfactor = 20)""",
)
_FULLTEXT = (
    """CREATE TABLE entries_text(
        entry BIGINT NOT NULL, part BIGINT NOT NULL, words tsvector NOT NULL,
        PRIMARY KEY(entry, part))""",
    "CREATE INDEX entries_text_words ON entries_text USING gin(words)",
)
_PARTS: Final = {"fulltext": _FULLTEXT, "months": FUNCTIONS, "memory": STATEMENTS}

log = structlog.get_logger(__name__)


def migrate(tx: PostgresTransaction) -> None:
    """Bring the tables to the current version; other programs that begin wait for it.

    Raises:
        StorageError: the server is too old, refuses what is needed, or a newer version of the
            program made the tables so that this one cannot use them.
    """
    check_server(tx)
    tx.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
    if not scalar(tx, "SELECT to_regclass('writers') IS NOT NULL"):
        for statement in _VERSIONS:
            _make(tx, statement)
    current = version(tx)
    once(tx, "fulltext", _FULLTEXT)
    if current:
        _by_month(tx)
    if current < schema.VERSION:
        _step(tx, current)
    for name, statements in _PARTS.items():
        once(tx, name, statements)


def _step(tx: PostgresTransaction, current: int) -> None:
    compatible_from = scalar(tx, "SELECT coalesce(max(compatible_from), 0) FROM schema_versions")
    for number, step in schema.steps(current):
        for statement in step:
            _make(tx, _spelled(statement))
        if number == schema.BASELINE:
            _by_month(tx)
        if not schema.is_additive(step):
            compatible_from = number
        tx.execute(
            "INSERT INTO schema_versions(version, applied_at, compatible_from, program) "
            "VALUES (?, CAST(now() AS TEXT), ?, ?)",
            (number, compatible_from, __version__),
        )


def check_made(tx: PostgresTransaction, **parts: Sequence[str]) -> None:
    """Make sure that `migrate`, and `once` of more parts, have nothing to do; changes nothing.

    Raises:
        StorageNotMade: they have; the message says what does it.
        StorageError: the server is too old, or a newer version of the program made the tables so
            that this one cannot use them.
    """
    check_server(tx)
    there = scalar(tx, "SELECT to_regclass('schema_versions') IS NOT NULL")
    wanted = {**_PARTS, **parts}.items()
    is_made = there and version(tx) >= schema.VERSION
    if not is_made or any(_missing(tx, name, statements) for name, statements in wanted):
        what = "older than this version of Confidant" if there else "not made yet"
        raise errors.StorageNotMade(
            f"The tables of this database are {what}, and nothing was changed. "
            f"`{confidant('migrate')}` makes them, with the URL of the role that owns them; so "
            f"does `{confidant('run')}`, where its role may."
        )


def _by_month(tx: PostgresTransaction) -> None:
    """Have what is said in a partition a month."""
    # The functions keep this path, so that nobody's own tables take the place of these.
    path = scalar(tx, "SELECT current_setting('search_path')")
    tx.execute(
        "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"
    )
    is_new = scalar(tx, "SELECT to_regclass('entry_months') IS NULL")
    if is_new:
        for statement in TABLES:
            _make(tx, _spelled(statement))
    once(tx, "months", FUNCTIONS)
    if is_new:
        lay_out(tx, Stored())
        for statement in KEYS:
            _make(tx, _spelled(statement))
    tx.execute("SELECT set_config('search_path', ?, true)", (path,))


def once(tx: PostgresTransaction, name: str, statements: Sequence[str]) -> None:
    """Run those of the statements for some part that were not run before, in their order.

    They are written like `schema.MIGRATIONS`. A part may get new ones, and keeps those it has.

    Raises:
        StorageError: the role may not do that.
    """
    for digest, statement in _missing(tx, name, statements).items():
        _make(tx, _spelled(statement))
        tx.execute("INSERT INTO schema_parts(name, digest) VALUES (?, ?)", (name, digest))


def _missing(tx: PostgresTransaction, name: str, statements: Sequence[str]) -> dict[str, str]:
    """Those of the statements for a part that were not run yet, by their digests."""
    done = {*scalars(tx, "SELECT digest FROM schema_parts WHERE name = ?", name)}
    digests = {blake2b(each.encode(), digest_size=16).hexdigest(): each for each in statements}
    return {digest: each for digest, each in digests.items() if digest not in done}


def belongs(tx: PostgresTransaction, cluster: str, now: int) -> None:
    """Make sure that the tables are those of this cluster; unnamed ones take its name.

    A name that the operator gives, because nothing else makes a bot the same: its tokens are
    renewed, its channels and its name in chats change.

    Raises:
        StorageError: they are another's, and two bots must not share them.
    """
    if check_cluster(tx, cluster) != cluster:
        keep(tx, "cluster", cluster, now)


def check_cluster(tx: PostgresTransaction, cluster: str) -> str:
    """The name of the cluster whose tables these are, or empty.

    Raises:
        StorageError: it is another name.
    """
    found = text_of(tx, "cluster") or ""
    if found and found != cluster:
        said = f'[storage] cluster is "{cluster}"' if cluster else "[storage] cluster is not set"
        raise errors.StorageError(
            f'This database belongs to the cluster "{found}", and here {said}. Nothing was changed:'
            " two bots need two databases; for the same bot set the same name."
        )
    return found


def check_making(tx: PostgresTransaction) -> None:
    """Make sure that the role may make tables.

    Raises:
        StorageError: it may not.
    """
    if not scalar(tx, "SELECT has_schema_privilege(current_schema(), 'CREATE')"):
        raise _may_not_make(tx)


def check_rights(tx: PostgresTransaction) -> None:
    """Make sure that the role may read and write all tables.

    Raises:
        StorageError: it may not; the message names them and has the statements that mend it.
    """
    rows = tx.execute(
        """SELECT relname FROM pg_class WHERE relnamespace = CAST(current_schema() AS regnamespace)
            AND relkind IN ('r', 'p') AND NOT relispartition AND NOT (
                has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
            ORDER BY relname"""
    )
    if rows:
        names = ", ".join(str(row[0]) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
        schema_name, _, role = _place(tx)
        raise errors.StorageError(
            f'The role "{role}" may not read and write these tables: {names}. Have their owner '
            f"run: {GRANTS.format(schema=schema_name, role=_quoted(role))}"
        )


def version_of(connection: Connection) -> int:
    """The version of the server, as PostgreSQL counts: 180001 is 18.1."""
    return connection.info.server_version


def check_server(tx: PostgresTransaction) -> None:
    """Make sure that the server is new enough.

    Raises:
        StorageError: it is not.
    """
    found = version_of(tx.connection)
    if found < OLDEST:
        raise errors.StorageError(
            f"This is PostgreSQL {found // 10_000}, and Confidant needs {OLDEST // 10_000} or "
            "newer. Nothing was changed."
        )


def version(tx: PostgresTransaction) -> int:
    """The version of the tables; 0 while there are none.

    Raises:
        StorageError: a newer version of the program made them, or one from before the first
            tables, and this one cannot use them.
    """
    rows = tx.execute(
        "SELECT version, compatible_from, program FROM schema_versions "
        "ORDER BY version DESC LIMIT 1"
    )
    current, compatible_from, program = rows[0] if rows else (0, 0, "")
    schema.must_be_known(int(current), "The database")
    if compatible_from > schema.VERSION:
        raise errors.StorageError(
            f"The database has tables of version {current}, made by a newer Confidant ({program}); "
            f"this is {__version__} and knows version {schema.VERSION}. Nothing was changed: start "
            "the newer one again, or restore the server's backup from before the upgrade."
        )
    if current > schema.VERSION:
        log.info("storage.schema_newer", version=current, known=schema.VERSION)
    return int(current)


def _make(tx: PostgresTransaction, statement: str) -> None:
    try:
        # Not through `execute`: whatever looks like a mark is none in these.
        tx.connection.execute(statement.encode())
    except pg.InsufficientPrivilege as exc:
        raise _may_not_make(tx) from exc


def _may_not_make(tx: PostgresTransaction) -> errors.StorageError:
    # The transaction may be over, but what the connection is called is known without it.
    role = _quoted(tx.connection.info.user)
    return errors.StorageError(
        f"The role {role} may not make or change tables, and some are missing or older than "
        f"this version. Run `{confidant('migrate')}` once with the URL of the role that owns "
        "them, or have the owner of the database run: "
        f"GRANT USAGE, CREATE ON SCHEMA public TO {role};"
    )


def _place(tx: PostgresTransaction) -> tuple[str, str, str]:
    """The schema, the database and the role."""
    found = tx.execute(
        "SELECT CAST(current_schema() AS TEXT), CAST(current_database() AS TEXT), "
        "CAST(current_user AS TEXT)"
    )[0]
    return str(found[0]), str(found[1]), str(found[2])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _spelled(statement: str) -> str:
    """A migration as PostgreSQL spells it; texts are compared byte by byte, as SQLite does."""
    statement = statement.replace("{serial}", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY")
    return re.sub(r"\bTEXT\b(?! COLLATE)", 'TEXT COLLATE "C"', statement)
