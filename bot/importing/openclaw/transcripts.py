"""The sessions of an agent of OpenClaw: JSONL files with an index, and the database after them."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw
import orjson

from bot.errors import ImportRefused
from bot.importing.openclaw.home import Agent
from bot.importing.values import (
    Said,
    Skipped,
    Talk,
    items,
    made,
    mapping,
    milliseconds,
    moment,
    text_of,
    words,
)
from bot.storage.sqlite import SqliteTransaction

# What the program put before and behind a person's words in some of its versions.
_ABOUT = re.compile(
    r"(?:Conversation info|Sender|Thread starter|Replied message|Forwarded message context)"
    r" \(untrusted[^)\n]*\):\n```json\n.*?\n```\n*",
    re.DOTALL,
)
_ENVELOPE = re.compile(r"\[[^\]\n]{0,300}\d{4}-\d\d-\d\d[ T]\d\d:\d\d[^\]\n]{0,60}\] ?")
_NUMBER = re.compile(r"\n?\[message_id: [^\[\]\n]*+\]\s*+$")
_DIRECTIVE = re.compile(
    r"\[\[\s*+(?:reply_to_current|reply_to:[^\[\]\n]*+|audio_as_voice)\s*+\]\]\s*+"
)
_SILENT: Final = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
_RESETS: Final = frozenset({"/new", "/reset"})
# What the program itself said in a person's place.
_PROMPTS = (
    "Read HEARTBEAT.md if it exists",
    "Pre-compaction memory flush",
    "A new session was started via /new or /reset",
    "System: ",
)


def said_in(events: Iterable[object]) -> Iterator[Said | None]:
    """The messages of a transcript; None for each in which there is nothing to read."""
    for event in map(mapping, events):
        # The oldest transcripts have the messages themselves, one a line.
        message = mapping(event.get("message")) if event.get("type") == "message" else event
        role = words(message.get("role"))
        if role not in {"user", "assistant"} or (message is event and event.get("type")):
            continue
        whole = text_of(message.get("content"))
        text = _of_person(whole) if role == "user" else _of_model(whole)
        if not text:
            if not whole and _is_shown(message.get("content")):
                yield None
            continue
        at = milliseconds(message.get("timestamp")) or moment(event.get("timestamp"))
        yield Said(words(event.get("id")), "user" if role == "user" else "assistant", text, at)


def _is_shown(content: object) -> bool:
    """True for blocks that a person saw, such as pictures, and not only for calls of tools."""
    hidden = {"toolCall", "tool_use", "thinking", "toolResult"}
    return any(words(mapping(each).get("type")) not in hidden for each in items(content))


def _of_person(text: str) -> str:
    bare = text
    while found := _ABOUT.match(bare):
        bare = bare[found.end() :]
    if found := _ENVELOPE.match(bare):
        bare = bare[found.end() :]
    bare = _NUMBER.sub("", bare).strip()
    is_programs = bare.startswith(_PROMPTS) or bare in _RESETS
    return "" if is_programs else bare


def _of_model(text: str) -> str:
    bare = _DIRECTIVE.sub("", text).strip()
    return "" if bare in _SILENT else bare


def began_at(events: Iterable[Mapping[str, object]]) -> int:
    """The start of a transcript by its header, in ms since the epoch; 0 if unknown."""
    headers = (event for event in events if event.get("type") == "session")
    return next((moment(header.get("timestamp")) for header in headers), 0)


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INDEX = "sessions.json"
MAX_INDEX = 256_000_000  # bytes
MAX_LINE = 16_000_000  # bytes of one event
MAX_EVENTS = 1_000_000  # of one session
_FILE = re.compile(r"(?P<id>[\w-]{1,100}?)(?:-topic-[\w.-]+)?\.jsonl(?:\.(?:reset|deleted)\..*)?")
_TABLES = ("session_windows", "sessions")  # by which name it had them, the newest first


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, with the key that says whose it is; empty when nothing does."""

    key: str
    talk: Talk | Skipped


def sessions(agent: Agent) -> Iterator[Session]:
    """Every session of an agent, whichever way it is kept; the same one may come twice.

    Raises:
        ImportRefused: its database cannot be read.
    """
    known: dict[str, str] = {}
    if agent.database is not None:
        for session_id, one in _of_database(agent, agent.database):
            known[session_id] = one.key
            yield one
    if agent.sessions is not None:
        yield from _of_files(agent, agent.sessions, known)


# --- files ----------------------------------------------------------------------------------------


def _of_files(agent: Agent, folder: Path, known: Mapping[str, str]) -> Iterator[Session]:
    entries, problem = _index(folder / INDEX)
    if problem:
        yield Session("", Skipped(f"{agent.name}/{INDEX}", problem))
    keys = dict(known)
    titles: dict[str, str] = {}
    for key, entry in entries.items():
        id_ = words(mapping(entry).get("sessionId"))
        keys[id_] = key
        titles[id_] = words(mapping(entry).get("displayName")) or words(mapping(entry).get("label"))
    for path in sorted(folder.iterdir()):
        matched = _FILE.fullmatch(path.name)
        if matched is None or path.is_symlink() or not path.is_file():
            continue
        id_ = matched["id"]
        yield from _of_file(agent, path, keys.get(id_, ""), id_, titles.get(id_, ""))


def _index(path: Path) -> tuple[Mapping[str, object], str]:
    try:
        if not path.is_file():
            return {}, ""
        if path.stat().st_size > MAX_INDEX:
            return {}, "it is longer than 256 MB"
        found: object = orjson.loads(path.read_bytes())
    except OSError as exc:
        return {}, f"it cannot be read: {exc.strerror}"
    except orjson.JSONDecodeError:
        return {}, "it is damaged, so nothing says whose the conversations beside it are"
    return mapping(found), ""


def _of_file(agent: Agent, path: Path, key: str, id_: str, title: str) -> Iterator[Session]:
    found: list[Mapping[str, object]] = []
    broken = 0
    try:
        with path.open("rb") as file:
            while (line := file.readline(MAX_LINE)) and len(found) < MAX_EVENTS:
                event = _event(line)
                broken += event is None and bool(line.strip())
                found += [event] if event else []
    except OSError as exc:
        yield Session(key, Skipped(f"{agent.name}/{path.name}", f"{exc.strerror}"))
        return
    if broken:
        why = f"{broken} {'line is' if broken == 1 else 'lines are'} damaged; the rest is kept"
        yield Session(key, Skipped(f"{agent.name}/{path.name}", why))
    yield Session(key, _talk(agent, id_, title, found))


def _event(line: bytes) -> Mapping[str, object] | None:
    try:
        return mapping(orjson.loads(line)) or None
    except orjson.JSONDecodeError:
        return None


def _talk(agent: Agent, id_: str, title: str, found: list[Mapping[str, object]]) -> Talk | Skipped:
    said = list(said_in(found))
    return made("openclaw", f"{agent.name}:{id_}", title, said, began_at(found))


# --- its database ---------------------------------------------------------------------------------


def _of_database(agent: Agent, path: Path) -> Iterator[tuple[str, Session]]:
    """Its sessions by id. A copy is read: opening a database may write to it."""
    with (
        tempfile.TemporaryDirectory(prefix="confidant-import-") as folder,
        opened(path, Path(folder)) as database,
    ):
        yield from _rows(agent, database)


@contextmanager
def opened(path: Path, folder: Path) -> Generator[SqliteTransaction]:
    """A copy of a database, with what is not in its main file yet, to be read within a `with`.

    Raises:
        ImportRefused: it cannot be copied, or is none.
    """
    copy = folder / path.name
    try:
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.is_file():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
    except OSError as exc:
        raise ImportRefused(f"{path} cannot be copied to be read: {exc.strerror}.") from exc
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        database = SqliteTransaction(connection)
        database.execute("PRAGMA trusted_schema = OFF")
        yield database
    except apsw.Error as exc:
        raise ImportRefused(
            f"{path} is damaged, or no database: {exc}. Nothing in it was changed."
        ) from exc
    finally:
        connection.close()


def tables(database: SqliteTransaction) -> set[str]:
    """The tables there are; a view is none, whatever it is called."""
    rows = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {str(row[0]) for row in rows}


def columns(database: SqliteTransaction, table: str) -> set[str]:
    """The columns of a table."""
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _rows(agent: Agent, database: SqliteTransaction) -> Iterator[tuple[str, Session]]:
    there = tables(database)
    table = next((name for name in _TABLES if name in there), "")
    if not table or "transcript_events" not in there:
        return
    title = "display_name" if "display_name" in columns(database, table) else "NULL"
    found = database.execute(f"SELECT session_id, session_key, {title} FROM {table}")
    is_packed = "event_zstd" in columns(database, "transcript_events")
    what = "event_json, event_zstd" if is_packed else "event_json, NULL"
    for id_, key, name in found:
        rows = database.execute(
            f"SELECT {what} FROM transcript_events WHERE session_id = ? ORDER BY seq LIMIT ?",
            (id_, MAX_EVENTS),
        )
        some: list[Mapping[str, object]] = []
        broken = 0
        for text, packed in rows:
            event = _event(_unpacked(text, packed))
            broken += event is None
            some += [event] if event else []
        if broken:
            why = f"{broken} of its events cannot be read; the rest is kept"
            yield words(id_), Session(words(key), Skipped(f"{agent.name}/{id_}", why))
        yield words(id_), Session(words(key), _talk(agent, words(id_), words(name), some))


def _unpacked(text: object, packed: object) -> bytes:
    """An event as it was before it was packed; empty when it cannot be unpacked."""
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if not isinstance(packed, bytes):
        return b""
    try:
        return zstd.ZstdDecompressor().decompress(packed, MAX_LINE)
    except zstd.ZstdError:
        return b""
