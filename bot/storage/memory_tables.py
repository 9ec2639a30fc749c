"""The tables of memory in PostgreSQL: notes, and the index over them and over what was said.

In a folder both are files, so SQLite has none of these. Statements are added and never changed:
programs of two versions may run side by side.
"""

from __future__ import annotations

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

# A generation is one whole set of rows; searches read the live one. A partition belongs to one
# generation, and everything else to a partition. `words` begins with a mark of its partition, so
# that one lookup in its index finds the words of that partition only.
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
