"""The tables on PostgreSQL: made and migrated by one program at a time, whoever comes first.

A role that may not make tables can run the program once another has made them: where nothing is
missing, nothing is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import structlog
from psycopg import errors as pg

from bot import __version__, errors
from bot.invocation import confidant
from bot.storage import months, scalar, scalars, schema
from bot.storage.postgres_sql import GRANTS, Connection, PostgresTransaction
from bot.storage.records import keep, text_of

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
_PARTS: Final = {"fulltext": _FULLTEXT, "months": months.FUNCTIONS, "memory": STATEMENTS}

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
        for statement in months.TABLES:
            _make(tx, _spelled(statement))
    once(tx, "months", months.FUNCTIONS)
    if is_new:
        months.lay_out(tx, months.Stored())
        for statement in months.KEYS:
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
