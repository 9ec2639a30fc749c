"""The tables, as forward migrations: version n is what the n-th step leaves behind.

One SQL for both engines: `{serial}` is the only word they spell differently. Times are
milliseconds since the epoch. Landed steps never change; a new need is a new step.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at BIGINT NOT NULL)",
        # A session is one conversation with one transcript. `previous` is where /undo goes.
        """CREATE TABLE sessions(
            id TEXT PRIMARY KEY, key TEXT NOT NULL, person TEXT NOT NULL, channel TEXT NOT NULL,
            account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
            chat_type TEXT NOT NULL, model TEXT NOT NULL, previous TEXT, started_at BIGINT NOT NULL,
            last_user_at BIGINT NOT NULL, started_by TEXT NOT NULL, last_entry TEXT,
            entry_count BIGINT NOT NULL, mirror_bytes BIGINT NOT NULL,
            input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
            context_tokens BIGINT NOT NULL, turns BIGINT NOT NULL)""",
        "CREATE INDEX sessions_by_key ON sessions(key, started_at)",
        # Which session a key's next message belongs to: the pointer that /new and /undo move.
        """CREATE TABLE conversations(
            key TEXT PRIMARY KEY, session_id TEXT NOT NULL, updated_at BIGINT NOT NULL)""",
        # `line` is the entry's line in the session's JSONL mirror, byte for byte.
        """CREATE TABLE entries(
            seq {serial}, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, kind TEXT NOT NULL,
            role TEXT NOT NULL, at BIGINT NOT NULL, line TEXT NOT NULL)""",
        "CREATE INDEX entries_by_session ON entries(session_id, seq)",
        """CREATE TABLE inbox(
            id {serial}, channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL,
            thread TEXT NOT NULL, message_id TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL,
            session_id TEXT, body TEXT NOT NULL, received_at BIGINT NOT NULL, done_at BIGINT,
            UNIQUE(channel, account, chat, thread, message_id))""",
        "CREATE INDEX inbox_waiting ON inbox(key, id) WHERE state = 'waiting'",
        "CREATE INDEX inbox_done ON inbox(done_at) WHERE state <> 'waiting'",
        """CREATE TABLE outbox(
            id {serial}, channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL,
            thread TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, reply_to TEXT NOT NULL,
            state TEXT NOT NULL, pieces_sent BIGINT NOT NULL, entry TEXT NOT NULL,
            created_at BIGINT NOT NULL,
            done_at BIGINT, error TEXT NOT NULL)""",
        """CREATE INDEX outbox_waiting ON outbox(channel, account, chat, thread, id)
            WHERE state = 'waiting'""",
        "CREATE INDEX outbox_done ON outbox(done_at) WHERE state <> 'waiting'",
        """CREATE TABLE pairing(
            channel TEXT NOT NULL, account TEXT NOT NULL, sender TEXT NOT NULL, state TEXT NOT NULL,
            code TEXT NOT NULL, name TEXT NOT NULL, locale TEXT NOT NULL, chat TEXT NOT NULL,
            thread TEXT NOT NULL, asked_at BIGINT NOT NULL, approved_at BIGINT,
            PRIMARY KEY(channel, account, sender))""",
    ),
    (
        # What the requests of a session begin with, byte for byte, for each view of it.
        """CREATE TABLE snapshots(
            session_id TEXT NOT NULL, view TEXT NOT NULL, system TEXT NOT NULL, tools TEXT NOT NULL,
            made_at BIGINT NOT NULL, PRIMARY KEY(session_id, view))""",
        # Entries no search may find again; the transcript itself only grows.
        "CREATE TABLE forgotten(seq BIGINT PRIMARY KEY, at BIGINT NOT NULL)",
    ),
)

VERSION = len(MIGRATIONS)
