"""The tables of an index file. Everything in it can be made again from the notes."""

from __future__ import annotations

FORMAT = 2  # raise it when the tables change: an index of another format is built anew

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # what a power cut takes is found again from the notes
    "PRAGMA cache_size = -1000",  # more is not faster: the system keeps the file in memory
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is forgotten must not stay in free pages
)
READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -1000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)
TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])

# `name` is a note's path below the workspace, or a document's id; only documents keep their text.
# In `chunks`, what a scan reads stands before what it does not; an id is never used again, so a
# reader that knows the chunks up to one id need only ask for later ones.
TABLES = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE partitions(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        chunks INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE sources(
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, partition INTEGER NOT NULL,
        name TEXT NOT NULL, space TEXT NOT NULL, path TEXT NOT NULL,
        hash BLOB NOT NULL, mtime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
        at INTEGER NOT NULL, problem TEXT NOT NULL, text TEXT)""",
    "CREATE UNIQUE INDEX sources_name ON sources(kind, partition, name)",
    """CREATE TABLE chunks(
        id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, partition INTEGER NOT NULL,
        start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, day INTEGER,
        length INTEGER NOT NULL, bits BLOB, vectors BLOB, heading TEXT NOT NULL,
        body TEXT NOT NULL)""",
    "CREATE INDEX chunks_source ON chunks(source)",
    "CREATE INDEX chunks_partition ON chunks(partition)",
    "CREATE INDEX chunks_without_vectors ON chunks(id) WHERE bits IS NULL",
    f"""CREATE VIRTUAL TABLE chunks_text USING fts5(
        scope, heading, body, content = '', contentless_delete = 1,
        tokenize = '{TOKENIZER[0]} {" ".join(TOKENIZER[1])}')""",
)
# Small blocks: most partitions are one person's, and each takes at least one block.
VECTORS = """CREATE VIRTUAL TABLE IF NOT EXISTS chunks_vectors USING vec0(
    partition INTEGER PARTITION KEY, bits bit[{bits}], chunk_size = 256)"""
VECTORS_TABLE = "chunks_vectors"

SCOPE_MARK = "\ue001"  # begins a partition's token, so that no word of a note is one
