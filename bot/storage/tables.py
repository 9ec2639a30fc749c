"""The one list of tables: what each is for, and whose its rows are.

Backup, restore, move, export, erase and the log of changes go by it. Columns stand in the schema;
a test compares the list with a fresh database of either engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Owner = Literal[
    "direct", "session", "entry", "person", "seat", "root", "chat", "asker", "repeat", "space",
    "page person", "page asker", "page name",
]  # fmt: skip
"""By which columns a row is somebody's.

"direct": a direct conversation of theirs; "session", "entry" and "repeat": the row names one of
those, an entry in one (`seq`), or a reminder of theirs that comes again. "person" and "space": the
column of that name. "seat": channel and sender; "root": root_channel and root_sender; "chat":
channel, account and chat of their direct chats; "asker": channel and asker. "page person", "page
asker" and "page name": `person`, `asker` and `name`, as the page knows them.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: in the schema.
        key: the columns of its primary key.
        owner: whose its rows are, by any of these; empty for what is nobody's alone.
        kind: "truth" cannot be had again, what is "derived" is made from it again, and what is of
            the "engine" says something about this one database only.
        engine: the only engine that has it; empty for both.
        export: the columns that an export tells, with spaces between, in the order of the first.
            Secrets are left out: codes, passwords, and what lets a browser in or seals what it is
            sent.
    """

    name: str
    key: tuple[str, ...]
    owner: tuple[Owner, ...] = ()
    kind: Literal["truth", "derived", "engine"] = "truth"
    engine: Literal["", "sqlite", "postgres"] = ""
    export: str = ""


# In the order in which a person's rows can be removed: what others are found by comes last.
TABLES = (
    Table("conversations", ("key",), ("session",)),
    Table("forgotten", ("seq",), ("entry",)),
    Table("hidden", ("seq", "block"), ("entry",)),
    Table("unseen", ("seq",), ("session",)),
    Table("branches", ("session_id", "source"), ("session",)),
    Table("prefixes", ("session_id", "view"), ("session",), kind="derived"),
    Table("prefix_texts", ("digest",), kind="derived"),
    Table("artifacts", ("id",), ("session",)),
    Table("titles", ("session_id",), ("session",), export="changed_at session_id title"),
    Table(
        "approvals", ("id",), ("session", "seat"), export="asked_at answered_at session_id state"
    ),
    Table("inbox", ("id",), ("session", "chat")),
    Table("outbox", ("id",), ("chat", "asker")),
    Table("uploads", ("channel", "account", "chat", "thread", "ref", "part"), ("chat",)),
    Table(
        "pairing",
        ("channel", "account", "sender"),
        ("seat",),
        export="asked_at approved_at channel account sender state name locale",
    ),
    Table("blocks", ("channel", "sender"), ("seat",), export="blocked_at channel sender name"),
    Table(
        "links",
        ("channel", "sender"),
        ("seat", "root"),
        export="linked_at channel sender root_channel root_sender",
    ),
    Table("link_codes", ("person",), ("person", "root")),
    Table(
        "reminders",
        ("id",),
        ("person",),
        export="id text due_at created_at state channel chat made_by",
    ),
    Table("repeat_runs", ("repeat", "due_at"), ("repeat",)),
    Table(
        "repeats",
        ("id",),
        ("person",),
        export="id kind text rule begins zone due_at created_at state channel chat made_by",
    ),
    Table("zones", ("person",), ("person",), export="changed_at person zone"),
    Table("told_zones", ("person",), ("person",), export="changed_at person zone"),
    Table("limit_notices", ("person", "whose", "span", "unit", "start"), ("person",)),
    Table("push_subscriptions", ("id",), ("person",), export="made_at endpoint language words"),
    Table(
        "usage_counts",
        ("person", "at", "session_id", "model", "purpose"),
        ("person", "session"),
        export="at session_id model purpose runs input_tokens output_tokens cache_read_tokens "
        "cache_write_tokens",
    ),
    Table("page_links", ("asker",), ("page person", "page asker")),
    Table("page_logins", ("digest",), ("page person",), export="made_at seen_at browser"),
    Table("api_keys", ("digest",), ("page person",), export="made_at used_at name"),
    Table("hooks", ("id",), ("page person",), export="made_at used_at name template"),
    Table(
        "page_people", ("name",), ("page name", "seat"), export="made_at out_at name channel sender"
    ),
    Table("note_versions", ("id",), ("space",)),
    Table("forgotten_spaces", ("space",), ("space",)),
    Table("claim_uses", ("space", "claim"), ("space",), export="used_on claim"),
    Table("entries", ("seq",), ("session",)),
    Table(
        "sessions",
        ("id",),
        ("direct",),
        export="started_at id key channel chat model notices usage locale last_user_at turns "
        "input_tokens output_tokens",
    ),
    # Nobody's alone.
    Table("rooms", ("key",)),
    Table("moved_chats", ("channel", "account", "chat")),
    Table("meta", ("key",)),
    # A server's own: notes, which are files elsewhere, and the index over them.
    Table("notes", ("path",), ("space",), engine="postgres"),
    Table("forgettings", ("space", "number"), ("space",), engine="postgres"),
    Table("memory_generations", ("id",), kind="derived", engine="postgres"),
    Table("memory_partitions", ("id",), kind="derived", engine="postgres"),
    Table("memory_sources", ("id",), kind="derived", engine="postgres"),
    Table("memory_chunks", ("id",), kind="derived", engine="postgres"),
    Table("memory_signs", ("chunk",), kind="derived", engine="postgres"),
    Table("memory_embeddings", ("hash", "identity"), kind="derived", engine="postgres"),
    # What finds entries by their words; its keys differ.
    Table("entries_text", (), kind="derived", engine="sqlite"),
    Table("entries_text", ("entry", "part"), kind="derived", engine="postgres"),
    # About this database alone.
    Table("schema_versions", ("version",), kind="engine"),
    Table("changes", ("id",), kind="engine", engine="sqlite"),
    Table("schema_parts", ("name", "digest"), kind="engine", engine="postgres"),
    Table("writers", ("id",), kind="engine", engine="postgres"),
    Table("entry_months", ("month",), kind="engine", engine="postgres"),
    Table("nodes", ("name",), kind="engine", engine="postgres"),
    Table("fences", ("name",), kind="engine", engine="postgres"),
    Table("events", ("id",), kind="engine", engine="postgres"),
)

KEYS = {each.name: each.key for each in TABLES}
"""The columns of each table's primary key."""

MOVED = tuple(each for each in TABLES if not each.engine and each.kind != "engine")
"""The tables a backup holds, and that move from one engine to the other."""
