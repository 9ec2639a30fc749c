"""The tables: those of the first version, and forward migrations from there.

One SQL for both engines: `{serial}` is the only word they spell differently. Times are
milliseconds since the epoch. Landed steps never change; a new need is a new step. It only adds
(`is_additive`), so that on PostgreSQL programs of this version and the last can run side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bot import __version__
from bot.errors import StorageError

BASELINE = 32
"""The version of `TABLES`: databases of an earlier one were never released, and are refused."""

TABLES: tuple[str, ...] = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at BIGINT NOT NULL)",
    # A session is one conversation with one transcript. `previous` is where /undo goes, `parent`
    # the chat that a thread hangs below, `server` that of both. `compaction` is the entry whose
    # summary stands for what was said before it, `held` a compaction taken back, `told` the highest
    # notice of this cycle, `stand_in` the model that answers while the session's own cannot.
    # `version` grows with each change of what is kept of it in memory; nothing of it lies in months
    # before that of `first_seq`, the number of its first entry (0: not known).
    """CREATE TABLE sessions(
        id TEXT PRIMARY KEY, key TEXT NOT NULL, person TEXT NOT NULL, channel TEXT NOT NULL,
        account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL, chat_type TEXT NOT NULL,
        model TEXT NOT NULL, previous TEXT, started_at BIGINT NOT NULL,
        last_user_at BIGINT NOT NULL, started_by TEXT NOT NULL, last_entry TEXT,
        entry_count BIGINT NOT NULL, mirror_bytes BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL, context_tokens BIGINT NOT NULL, turns BIGINT NOT NULL,
        compaction TEXT, compaction_count BIGINT NOT NULL DEFAULT 0,
        held BIGINT NOT NULL DEFAULT 0, memory_flush_at BIGINT NOT NULL DEFAULT 0,
        memory_flush_compaction_count BIGINT NOT NULL DEFAULT -1,
        flushed_to BIGINT NOT NULL DEFAULT 0, told BIGINT NOT NULL DEFAULT 0,
        saved TEXT NOT NULL DEFAULT '', notices TEXT NOT NULL DEFAULT '',
        usage TEXT NOT NULL DEFAULT '', sender TEXT NOT NULL DEFAULT '',
        locale TEXT NOT NULL DEFAULT '', last_turn_at BIGINT NOT NULL DEFAULT 0,
        ended_by TEXT NOT NULL DEFAULT '', ended_at BIGINT NOT NULL DEFAULT 0,
        cached_tokens BIGINT NOT NULL DEFAULT 0, parent TEXT NOT NULL DEFAULT '',
        server TEXT NOT NULL DEFAULT '', version BIGINT NOT NULL DEFAULT 0,
        first_seq BIGINT NOT NULL DEFAULT 0, stand_in TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX sessions_by_key ON sessions(key, started_at)",
    # Those that may be over by themselves: the longest silent first.
    "CREATE INDEX sessions_open ON sessions(last_user_at) WHERE turns > 0 AND ended_by = ''",
    # How full the open ones are, by model: whose window may be another one by now.
    """CREATE INDEX sessions_filling ON sessions(model, context_tokens)
        WHERE turns > 0 AND ended_by = ''""",
    # Somebody's direct conversations by their last turn, and those of an address.
    """CREATE INDEX sessions_by_person ON sessions(person,
        (CASE WHEN last_turn_at > 0 THEN last_turn_at ELSE started_at END))
        WHERE chat_type = 'direct'""",
    "CREATE INDEX sessions_by_address ON sessions(channel, account, chat, last_user_at)",
    # Which session a key's next message belongs to: the pointer that /new and /undo move.
    """CREATE TABLE conversations(
        key TEXT PRIMARY KEY, session_id TEXT NOT NULL, updated_at BIGINT NOT NULL)""",
    # `line` is the entry's line in the session's JSONL mirror, byte for byte.
    """CREATE TABLE entries(
        seq {serial}, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, kind TEXT NOT NULL,
        role TEXT NOT NULL, at BIGINT NOT NULL, line TEXT NOT NULL)""",
    "CREATE INDEX entries_by_session ON entries(session_id, seq)",
    # `tries` is how often the turn of a message failed, `error` by what it was set aside, `deaths`
    # how often the program ended while it was prepared; `node` which of many answers a command.
    """CREATE TABLE inbox(
        id {serial}, channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL,
        thread TEXT NOT NULL, message_id TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL,
        session_id TEXT, body TEXT NOT NULL, received_at BIGINT NOT NULL, done_at BIGINT,
        tries BIGINT NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
        deaths BIGINT NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '',
        UNIQUE(channel, account, chat, thread, message_id))""",
    "CREATE INDEX inbox_waiting ON inbox(key, id) WHERE state = 'waiting'",
    "CREATE INDEX inbox_done ON inbox(done_at) WHERE state <> 'waiting'",
    "CREATE INDEX inbox_aside ON inbox(done_at) WHERE state = 'aside'",
    "CREATE INDEX inbox_commands ON inbox(node) WHERE state = 'command'",
    # `extra` are the buttons and attachments of a text as JSON, `tries` how often it failed,
    # `again` whether it is tried again once it is parked, `language` that to say so in. `asker` is
    # whom a text in a room is for: nobody's many texts hold up another's first.
    """CREATE TABLE outbox(
        id {serial}, channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL,
        thread TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, reply_to TEXT NOT NULL,
        state TEXT NOT NULL, pieces_sent BIGINT NOT NULL, entry TEXT NOT NULL,
        created_at BIGINT NOT NULL, done_at BIGINT, error TEXT NOT NULL,
        extra TEXT NOT NULL DEFAULT '', tries BIGINT NOT NULL DEFAULT 0,
        again BIGINT NOT NULL DEFAULT 0, language TEXT NOT NULL DEFAULT '',
        asker TEXT NOT NULL DEFAULT '')""",
    """CREATE INDEX outbox_waiting ON outbox(channel, account, chat, thread, id)
        WHERE state = 'waiting'""",
    "CREATE INDEX outbox_done ON outbox(done_at) WHERE state <> 'waiting'",
    "CREATE INDEX outbox_parked ON outbox(again, tries, id) WHERE state = 'parked'",
    # `given` is how many codes somebody was given without an hour in between.
    """CREATE TABLE pairing(
        channel TEXT NOT NULL, account TEXT NOT NULL, sender TEXT NOT NULL, state TEXT NOT NULL,
        code TEXT NOT NULL, name TEXT NOT NULL, locale TEXT NOT NULL, chat TEXT NOT NULL,
        thread TEXT NOT NULL, asked_at BIGINT NOT NULL, approved_at BIGINT,
        given BIGINT NOT NULL DEFAULT 1, PRIMARY KEY(channel, account, sender))""",
    """CREATE INDEX pairing_open ON pairing(channel, account, asked_at)
        WHERE state <> 'approved'""",
    # Who gets neither an answer nor a code, and where they wrote from.
    """CREATE TABLE blocks(
        channel TEXT NOT NULL, sender TEXT NOT NULL, name TEXT NOT NULL, locale TEXT NOT NULL,
        account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
        blocked_at BIGINT NOT NULL, PRIMARY KEY(channel, sender))""",
    # Entries no search may find again; the transcript itself only grows.
    "CREATE TABLE forgotten(seq BIGINT PRIMARY KEY, at BIGINT NOT NULL)",
    # Blocks of entries that no request shows the model again, by their number from 0.
    """CREATE TABLE hidden(
        seq BIGINT NOT NULL, block BIGINT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY(seq, block))""",
    """CREATE TABLE reminders(
        id {serial}, key TEXT NOT NULL, person TEXT NOT NULL, channel TEXT NOT NULL,
        account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL, language TEXT NOT NULL,
        made_by TEXT NOT NULL, text TEXT NOT NULL, due_at BIGINT NOT NULL,
        created_at BIGINT NOT NULL, state TEXT NOT NULL, done_at BIGINT)""",
    "CREATE INDEX reminders_due ON reminders(due_at) WHERE state = 'waiting'",
    "CREATE INDEX reminders_by_key ON reminders(key, due_at)",
    "CREATE INDEX reminders_by_person ON reminders(person) WHERE state = 'waiting'",
    # Reminders that come again, and tasks (`kind`: "text" is said, "task" is carried out). `rule`
    # is an RRULE that begins at `begins`, `zone` is the one that `due_at`, the next time, was
    # worked out for, `origin` that of whoever asked, `failures` how many runs in a row failed.
    """CREATE TABLE repeats(
        id {serial}, key TEXT NOT NULL, person TEXT NOT NULL, channel TEXT NOT NULL,
        account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL, language TEXT NOT NULL,
        origin TEXT NOT NULL, made_by TEXT NOT NULL, text TEXT NOT NULL, rule TEXT NOT NULL,
        begins TEXT NOT NULL, zone TEXT NOT NULL, due_at BIGINT NOT NULL,
        created_at BIGINT NOT NULL, state TEXT NOT NULL, done_at BIGINT,
        kind TEXT NOT NULL DEFAULT 'text', failures BIGINT NOT NULL DEFAULT 0)""",
    "CREATE INDEX repeats_due ON repeats(due_at) WHERE state = 'waiting'",
    "CREATE INDEX repeats_by_key ON repeats(key, due_at)",
    "CREATE INDEX repeats_by_person ON repeats(person) WHERE state = 'waiting'",
    # What came of the last times of each; `letter` is the text in the outbox, `missed` how many
    # more times had gone by when it was sent, `state` how far a run is ("said", "running",
    # "silent", "failed"), `error` why it failed, in words.
    """CREATE TABLE repeat_runs(
        repeat BIGINT NOT NULL, due_at BIGINT NOT NULL, at BIGINT NOT NULL, missed BIGINT NOT NULL,
        letter BIGINT NOT NULL, state TEXT NOT NULL DEFAULT 'said', error TEXT NOT NULL DEFAULT '',
        PRIMARY KEY(repeat, due_at))""",
    "CREATE INDEX repeat_runs_running ON repeat_runs(at) WHERE state = 'running'",
    # Tool results that were too long for a transcript, whole.
    """CREATE TABLE artifacts(
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL, tool TEXT NOT NULL, at BIGINT NOT NULL,
        text TEXT NOT NULL)""",
    # Whether a tool may be called: who is asked, about which call of which entry, and since
    # when; when it was answered, and whether the call was begun.
    """CREATE TABLE approvals(
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL, entry TEXT NOT NULL, call TEXT NOT NULL,
        channel TEXT NOT NULL, account TEXT NOT NULL, sender TEXT NOT NULL,
        state TEXT NOT NULL, asked_at BIGINT NOT NULL, answered_at BIGINT NOT NULL)""",
    "CREATE INDEX approvals_by_session ON approvals(session_id, asked_at)",
    "CREATE INDEX approvals_by_age ON approvals(asked_at)",
    # When the bot answers in a room, and when the room was last told that it does not.
    """CREATE TABLE rooms(
        key TEXT PRIMARY KEY, activation TEXT NOT NULL, warned_at BIGINT NOT NULL,
        changed_at BIGINT NOT NULL)""",
    # Chats that have another id now; `first` is the one their conversations are kept under.
    """CREATE TABLE moved_chats(
        channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, first TEXT NOT NULL,
        moved_at BIGINT NOT NULL, PRIMARY KEY(channel, account, chat))""",
    # Accounts that count as another one of the same person, and where they can be told.
    """CREATE TABLE links(
        channel TEXT NOT NULL, sender TEXT NOT NULL, root_channel TEXT NOT NULL,
        root_sender TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
        language TEXT NOT NULL, linked_at BIGINT NOT NULL, PRIMARY KEY(channel, sender))""",
    """CREATE TABLE link_codes(
        person TEXT PRIMARY KEY, code TEXT NOT NULL, root_channel TEXT NOT NULL,
        root_sender TEXT NOT NULL, channel TEXT NOT NULL, account TEXT NOT NULL,
        chat TEXT NOT NULL, thread TEXT NOT NULL, key TEXT NOT NULL, language TEXT NOT NULL,
        made_at BIGINT NOT NULL)""",
    # The time zone somebody chose, by canonical identity; and the one in which their browser is,
    # which counts while they chose none.
    "CREATE TABLE zones(person TEXT PRIMARY KEY, zone TEXT NOT NULL, changed_at BIGINT NOT NULL)",
    """CREATE TABLE told_zones(
        person TEXT PRIMARY KEY, zone TEXT NOT NULL, changed_at BIGINT NOT NULL)""",
    # What people named their conversations.
    """CREATE TABLE titles(
        session_id TEXT PRIMARY KEY, title TEXT NOT NULL, changed_at BIGINT NOT NULL)""",
    # What models used, by quarter of an hour: the days of every time zone begin with one.
    """CREATE TABLE usage_counts(
        person TEXT NOT NULL, at BIGINT NOT NULL, session_id TEXT NOT NULL, model TEXT NOT NULL,
        purpose TEXT NOT NULL, runs BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL, cache_read_tokens BIGINT NOT NULL,
        cache_write_tokens BIGINT NOT NULL,
        PRIMARY KEY(person, at, session_id, model, purpose))""",
    "CREATE INDEX usage_counts_by_time ON usage_counts(at)",
    # Who was told that most of a limit is used, and in which period of it.
    """CREATE TABLE limit_notices(
        person TEXT NOT NULL, whose TEXT NOT NULL, span TEXT NOT NULL, unit TEXT NOT NULL,
        start BIGINT NOT NULL, told_at BIGINT NOT NULL,
        PRIMARY KEY(person, whose, span, unit, start))""",
    # Who may open the page beside the owner: let in by name, or from the seat and the chat
    # (`origin`, JSON) that they asked from. A name stays theirs also when they are out.
    """CREATE TABLE page_people(
        name TEXT PRIMARY KEY, channel TEXT NOT NULL, sender TEXT NOT NULL, origin TEXT NOT NULL,
        password TEXT NOT NULL, made_at BIGINT NOT NULL, out_at BIGINT NOT NULL)""",
    "CREATE INDEX page_people_by_seat ON page_people(channel, sender)",
    # Links that let a browser in, once, and browsers that were let in: digests of secrets.
    """CREATE TABLE page_links(
        asker TEXT PRIMARY KEY, digest TEXT NOT NULL, person TEXT NOT NULL, origin TEXT NOT NULL,
        language TEXT NOT NULL, made_at BIGINT NOT NULL, valid_ms BIGINT NOT NULL)""",
    """CREATE TABLE page_logins(
        digest TEXT PRIMARY KEY, id TEXT NOT NULL, person TEXT NOT NULL, origin TEXT NOT NULL,
        browser TEXT NOT NULL, made_at BIGINT NOT NULL, seen_at BIGINT NOT NULL)""",
    "CREATE INDEX page_logins_by_person ON page_logins(person, seen_at)",
    # Browsers that are told of messages to a person: where, sealed with which keys, for as long
    # as `login` lets them in; `words` says that they get the first words.
    """CREATE TABLE push_subscriptions(
        id TEXT PRIMARY KEY, person TEXT NOT NULL, login TEXT NOT NULL, endpoint TEXT NOT NULL,
        p256dh TEXT NOT NULL, auth TEXT NOT NULL, origin TEXT NOT NULL, language TEXT NOT NULL,
        words BIGINT NOT NULL, made_at BIGINT NOT NULL)""",
    "CREATE INDEX push_subscriptions_by_person ON push_subscriptions(person, made_at)",
    # What notes said before they were changed in the page, and how often something was
    # forgotten in a space.
    """CREATE TABLE note_versions(
        id {serial}, space TEXT NOT NULL, path TEXT NOT NULL, at BIGINT NOT NULL,
        kind TEXT NOT NULL, size BIGINT NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX note_versions_by_note ON note_versions(space, path, id)",
    "CREATE TABLE forgotten_spaces(space TEXT PRIMARY KEY, number BIGINT NOT NULL)",
    # The last day on which an answer used a claim of a space's notes; `claim` is a digest.
    """CREATE TABLE claim_uses(
        space TEXT NOT NULL, claim TEXT NOT NULL, used_on TEXT NOT NULL,
        PRIMARY KEY(space, claim))""",
    # Files that came in through a page, in parts, for a day; `data` is base64, `size` the
    # bytes of the whole file.
    """CREATE TABLE uploads(
        channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
        ref TEXT NOT NULL, part BIGINT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
        mime TEXT NOT NULL, size BIGINT NOT NULL, bytes BIGINT NOT NULL, data TEXT NOT NULL,
        at BIGINT NOT NULL, PRIMARY KEY(channel, account, chat, thread, ref, part))""",
    "CREATE INDEX uploads_by_age ON uploads(at)",
    # What the requests of sessions begin with, each text once, by its digest: `system` and
    # `tools` are digests.
    "CREATE TABLE prefix_texts(digest TEXT PRIMARY KEY, text TEXT NOT NULL)",
    """CREATE TABLE prefixes(
        session_id TEXT NOT NULL, view TEXT NOT NULL, system TEXT NOT NULL, tools TEXT NOT NULL,
        sizes TEXT NOT NULL, made_at BIGINT NOT NULL, PRIMARY KEY(session_id, view))""",
    "CREATE INDEX prefixes_by_system ON prefixes(system)",
    "CREATE INDEX prefixes_by_tools ON prefixes(tools)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # The beginnings of requests are in `prefixes`, and SQLite says itself what was changed.
    (
        "DROP TABLE IF EXISTS snapshots",
        "DROP TABLE IF EXISTS journal",
        "DROP TABLE IF EXISTS ahead",
    ),
    # How much the model thinks in a conversation, where its person chose.
    ("ALTER TABLE sessions ADD COLUMN thinking TEXT NOT NULL DEFAULT ''",),
    # Programs that talk as a page person, by the digest of what they know.
    (
        """CREATE TABLE api_keys(
        digest TEXT PRIMARY KEY, id TEXT NOT NULL, person TEXT NOT NULL, name TEXT NOT NULL,
        is_apart BIGINT NOT NULL, made_at BIGINT NOT NULL, used_at BIGINT NOT NULL)""",
        "CREATE INDEX api_keys_by_person ON api_keys(person, made_at)",
        # Where programs report events to a page person, signed with `secret`.
        """CREATE TABLE hooks(
        id TEXT PRIMARY KEY, person TEXT NOT NULL, name TEXT NOT NULL, secret TEXT NOT NULL,
        template TEXT NOT NULL, made_at BIGINT NOT NULL, used_at BIGINT NOT NULL)""",
        "CREATE INDEX hooks_by_person ON hooks(person, made_at)",
    ),
    # Which room was declined, and when the owner let the bot answer there; 0 is never.
    (
        "ALTER TABLE rooms ADD COLUMN channel TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rooms ADD COLUMN account TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rooms ADD COLUMN chat TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rooms ADD COLUMN chat_type TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rooms ADD COLUMN admitted_at BIGINT NOT NULL DEFAULT 0",
    ),
    # Where its person put a conversation ("pinned", "archived"), and when they deleted it, or 0.
    (
        "ALTER TABLE sessions ADD COLUMN shelf TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0",
        "CREATE INDEX sessions_shelved ON sessions(person, shelf) WHERE shelf <> ''",
    ),
    # Versions of a turn: messages (`source`) that took one another's place, those of one `fork` in
    # order of `number`; what comes after entry `after_seq` is a version's own. `taken` counts how
    # often it came in sight, `compaction` is the one that counted when it was left. `unseen` are
    # the entries out of sight, with the version they are seen with.
    (
        """CREATE TABLE branches(
        session_id TEXT NOT NULL, source TEXT NOT NULL, fork TEXT NOT NULL, number BIGINT NOT NULL,
        after_seq BIGINT NOT NULL, taken BIGINT NOT NULL, compaction TEXT,
        PRIMARY KEY(session_id, source))""",
        """CREATE TABLE unseen(
        seq BIGINT PRIMARY KEY, session_id TEXT NOT NULL, source TEXT NOT NULL)""",
        "CREATE INDEX unseen_by_version ON unseen(session_id, source)",
    ),
    # What somebody has to talk about for a reminder to be said, instead of a time.
    ("ALTER TABLE reminders ADD COLUMN about TEXT NOT NULL DEFAULT ''",),
)
"""The changes of each version after `BASELINE`."""

VERSION = BASELINE + len(MIGRATIONS)

_ADDED = re.compile(r"CREATE TABLE |CREATE INDEX |ALTER TABLE \w+ ADD COLUMN ")
_DEMANDS = re.compile(r"ADD COLUMN (?!.*DEFAULT).*NOT NULL|ADD COLUMN .*(UNIQUE|REFERENCES|CHECK)")


def steps(current: int) -> Iterator[tuple[int, Sequence[str]]]:
    """The versions after `current`, each with what makes it; from 0 on also the first tables."""
    if current < BASELINE:
        yield BASELINE, TABLES
    first = max(current, BASELINE)
    yield from enumerate(MIGRATIONS[first - BASELINE :], first + 1)


def must_be_known(current: int, where: str) -> None:
    """Make sure that tables, unless there are none (0), are not of a time before the first ones.

    Raises:
        StorageError: they are; the message says what to do.
    """
    if 0 < current < BASELINE:
        raise StorageError(
            f"{where} has tables of version {current}, made by a Confidant from before 0.1.0; this "
            f"is {__version__} and reads version {BASELINE} and later. Nothing was changed: open "
            "it once with a version that still upgrades it, or begin anew without it."
        )


def is_additive(step: Sequence[str]) -> bool:
    """True when programs that do not know a step can go on: it only adds what they may leave out.

    That is tables, indexes that refuse nothing, and columns that need no value.
    """
    return all(_ADDED.match(each) and not _DEMANDS.search(each) for each in step)
