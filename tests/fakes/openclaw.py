"""A folder of OpenClaw's, made by code: as of January 2026 in files, as of September in SQLite.

The tables are those that OpenClaw 2026.9.6 made, with the columns that are read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BEGAN = 1_767_600_000_000  # 2026-01-05 08:00 UTC, in ms
PACKED = 1_024  # bytes from which on an event is packed

NOTES: Mapping[str, str] = {
    "memory.md": (
        "# Memory\n\nAda is the captain of a small boat.\n\n- The boat is called Quallenfischer\n"
        "- 女儿对花生过敏 <!-- owner -->\n\n## Projects\n- Paint the hull before May\n"
        "  with the blue paint\n"
    ),
    "USER.md": "# User\n- Prefers short answers\n",
    "SOUL.md": "You are a lobster with manners.\n",
    "AGENTS.md": "Use the tools of OpenClaw.\n",
    "memory/2026-01-05.md": "# 2026-01-05\n\n- bought rope at the harbour\n- 14:03 met Bo\n",
    "memory/2026-01-06.md": "- sailed to Kiel\n",
    "memory/2026-01-06-trip.md": "The trip took nine hours.\n",
    "memory/people/bo.md": "- Bo has a dog\n",
}


def event(number: int, role: str, text: str, *, blocks: bool = False) -> dict[str, Any]:
    at = BEGAN + 60_000 * number
    content: Any = [{"type": "text", "text": text}] if blocks or role == "assistant" else text
    return {
        "type": "message",
        "id": f"e{number}",
        "parentId": f"e{number - 1}" if number else None,
        "timestamp": iso(at),
        "message": {"role": role, "content": content, "timestamp": at},
    }


def session(id_: str, *texts: str) -> list[dict[str, Any]]:
    """The events of a transcript: its header, and what was said in turn."""
    said = [
        event(number, "assistant" if number % 2 else "user", text)
        for number, text in enumerate(texts)
    ]
    header = {"type": "session", "version": 3, "id": id_, "timestamp": iso(BEGAN), "cwd": "/x"}
    return [header, {"type": "model_change", "id": "m", "timestamp": iso(BEGAN)}, *said]


def iso(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%S.000}Z"


def workspace(folder: Path, notes: Mapping[str, str] = NOTES) -> Path:
    for name, text in notes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_768_000_000, 1_768_000_000))  # 2026-01-09
    return folder


def settings(folder: Path, **sections: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "openclaw.json").write_text(json.dumps(sections))


def in_files(folder: Path, talks: Mapping[str, Sequence[Any]], agent: str = "main") -> Path:
    """Sessions by key, as of January: an index, and a file of lines each."""
    home = folder / "agents" / agent / "sessions"
    home.mkdir(parents=True, exist_ok=True)
    index: dict[str, Any] = {}
    for number, (key, events) in enumerate(talks.items()):
        id_ = f"{agent}-s{number}"
        index[key] = {"sessionId": id_, "updatedAt": BEGAN, "chatType": "direct"}
        lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
        (home / f"{id_}.jsonl").write_text("\n".join(lines) + "\n")
    (home / "sessions.json").write_text(json.dumps(index))
    return home


def in_database(folder: Path, talks: Mapping[str, Sequence[Any]], agent: str = "main") -> Path:
    """Sessions by key, as of September: rows of a database, long events packed."""
    path = folder / "agents" / agent / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE session_windows(session_id TEXT NOT NULL PRIMARY KEY, "
        "session_key TEXT NOT NULL, display_name TEXT, created_at INTEGER NOT NULL) STRICT"
    )
    connection.execute(
        "CREATE TABLE transcript_events(session_id TEXT NOT NULL, seq INTEGER NOT NULL, "
        "event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB, "
        "PRIMARY KEY(session_id, seq)) STRICT"
    )
    for number, (key, events) in enumerate(talks.items()):
        id_ = f"{agent}-s{number}"
        connection.execute("INSERT INTO session_windows VALUES (?, ?, NULL, 0)", (id_, key))
        for seq, each in enumerate(events):
            text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
            packed = zstd.compress(text.encode()) if len(text) >= PACKED else None
            connection.execute(
                "INSERT INTO transcript_events VALUES (?, ?, ?, 0, ?)",
                (id_, seq, None if packed else text, packed),
            )
    connection.close()
    return path


def let_in(folder: Path, *entries: tuple[str, str, str]) -> None:
    """People who were let in, as of September: (channel, account, id)."""
    path = folder / "state" / "openclaw.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE channel_pairing_allow_entries(channel_key TEXT NOT NULL, "
        "account_id TEXT NOT NULL, entry TEXT NOT NULL, sort_order INTEGER NOT NULL, "
        "updated_at INTEGER NOT NULL, PRIMARY KEY(channel_key, account_id, entry)) STRICT"
    )
    for entry in entries:
        connection.execute(
            "INSERT INTO channel_pairing_allow_entries VALUES (?, ?, ?, 0, 0)", entry
        )
    connection.close()
