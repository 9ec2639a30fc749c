"""Everything of one person in one file, for them to read and to take along.

It is made while the bot runs: the database is read in one snapshot, notes after it, through views
that hold nobody else's. Of rooms it has what they said themselves, and nothing of what others said.
"""

from __future__ import annotations

import errno
import re
import zipfile
from base64 import b64decode
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from bot.channel import Address
from bot.clock import moment, to_the_minute
from bot.delivery import outbox
from bot.errors import ConfidantError
from bot.i18n import language_of, text
from bot.identity import MANY
from bot.memory.files import MAX_READ, SpaceFiles
from bot.portability.whose import Whose
from bot.sessions import artifacts, belongings, imported, search, speakers, store
from bot.sessions.belongings import Belongings
from bot.sessions.entries import Entry, parse, without_thoughts
from bot.sessions.store import Session
from bot.storage import Transaction, files
from bot.storage.tables import TABLES

_PLAIN = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds; `left_out` counts conversations that several people wrote in."""

    conversations: int
    entries: int
    in_rooms: int
    notes: int
    files: int
    left_out: int


@contextmanager
def exporting(target: Path, now: int) -> Generator[Export]:
    """One export; the file gets its name when all of it is on the disk.

    Raises:
        ConfidantError: it cannot be made there.
    """
    if target.exists():
        raise ConfidantError(
            f"{target} is there already. Nothing was changed: choose another name."
        )
    if not target.parent.is_dir():
        raise ConfidantError(f"There is no folder {target.parent}. Make it first.")
    try:
        with files.made(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            yield Export(packed, now)
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise ConfidantError(
            f"The export {target} was not made: {why}. Nothing was changed."
        ) from error


class Export:
    """One export that is being written."""

    def __init__(self, packed: zipfile.ZipFile, now: int) -> None:
        self._zip = packed
        self._now = now
        self._names: set[str] = set()

    def readme(self, whose: Whose, language: str, found: Exported) -> None:
        """Say what it holds."""
        self._add("README.md", _readme(language, whose, found, self._now))

    def database(self, tx: Transaction, whose: Whose, language: str) -> Exported:
        """Add what the database holds, in one snapshot."""
        theirs = whose.theirs
        told = said = left_out = 0
        for session_id in theirs.sessions:
            session = store.get(tx, session_id)
            if session is None or session.sender == MANY:
                left_out += session is not None
                continue
            told += 1
            said += self._conversation(tx, session, language)
        in_rooms = self._rooms(tx, theirs, language)
        for table in TABLES:
            if table.export and (
                rows := belongings.rows(tx, theirs, table.name, table.export.split())
            ):
                self._add(f"data/{table.name}.json", orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        versions = belongings.rows(tx, theirs, "note_versions", ("id", "path", "at", "text"))
        for row in versions:
            self._add(f"earlier-notes/{row['id']}-{row['path']}", str(row["text"]))
        return Exported(told, said, in_rooms, 0, self._files(tx, theirs), left_out)

    async def notes(self, whose: Whose, space_files: SpaceFiles) -> int:
        """Add their notes, through their own views; how many there are."""
        count = 0
        for view in whose.views:
            for listed in await space_files.names(view):
                if listed.path.startswith("shared/"):
                    continue
                data = await space_files.data(view, listed.path, MAX_READ)
                self._add(f"notes/{listed.path}", data)
                count += 1
        return count

    def _conversation(self, tx: Transaction, session: Session, language: str) -> int:
        lines = store.lines(tx, session.id)
        kept = [parse(line) for line in lines[1:]]
        gone = search.forgotten(tx, session.id)
        shown = store.veiled(tx, session.id, [each for each in kept if each.id not in gone])
        day = moment(session.started_at, None).strftime("%Y-%m-%d")
        name = f"conversations/{day}-{session.id}"
        self._add(f"{name}.jsonl", "".join(f"{without_thoughts(line)}\n" for line in lines))
        where = imported.name_of(session.channel) or session.channel
        title = text(language, "export.conversation", day=day, channel=where)
        self._add(f"{name}.md", _markdown(language, title, shown))
        return len(kept)

    def _rooms(self, tx: Transaction, theirs: Belongings, language: str) -> int:
        count = 0
        for session_id, key in speakers.rooms(tx):
            said = [entry for _, entry in speakers.said_by(tx, session_id, theirs.accounts)]
            if not said:
                continue
            count += len(said)
            lines = [{"at": each.said_or_at, "room": key, "text": each.text} for each in said]
            self._add(
                f"rooms/{session_id}.jsonl", b"".join(orjson.dumps(line) + b"\n" for line in lines)
            )
            title = text(language, "export.room", room=key)
            self._add(f"rooms/{session_id}.md", _markdown(language, title, said))
        return count

    def _files(self, tx: Transaction, theirs: Belongings) -> int:
        kept = belongings.rows(tx, theirs, "artifacts", ("id", "tool", "text"))
        for row in kept:
            if row["tool"] == artifacts.PICTURE:
                self._add(f"files/{row['id']}", b64decode(str(row["text"])))
            else:
                self._add(f"files/{row['id']}.txt", str(row["text"]))
        whole: dict[str, bytes] = {}
        for row in belongings.rows(tx, theirs, "uploads", ("ref", "part", "name", "data")):
            name = f"files/{row['ref']}-{row['name']}"
            whole[name] = whole.get(name, b"") + b64decode(str(row["data"]))
        for name, data in whole.items():
            self._add(name, data)
        return len(kept) + len(whole)

    def _add(self, name: str, data: str | bytes) -> None:
        """Add a file under a name that is one on every system."""
        plain = "/".join(_PLAIN.sub("-", part).strip("-.") or "file" for part in name.split("/"))
        stem, number = plain, 1
        while plain.casefold() in self._names:
            number += 1
            plain = f"{number}-{stem}" if "/" not in stem else stem.replace("/", f"/{number}-", 1)
        self._names.add(plain.casefold())
        at = moment(self._now, None)
        info = zipfile.ZipInfo(plain, at.timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        self._zip.writestr(info, data)


def tell(tx: Transaction, whose: Whose, language: str, now: int) -> bool:
    """Say in their latest direct chat that it was made; False when they have none."""
    chats = [store.latest_direct(tx, name) for name in whose.theirs.names]
    known = [chat for chat in chats if chat is not None and chat.sender != MANY]
    if not known:
        return False
    chat = max(known, key=lambda each: (each.last_user_at, each.id))
    address = Address(chat.channel, chat.account, chat.chat, chat.thread)
    words = text(language, "export.told", at=to_the_minute(now, None))
    outbox.add(tx, address, words, now, kind="notice", language=language)
    return True


def is_known(tx: Transaction, whose: Whose) -> bool:
    """True when a table holds anything of theirs."""
    return bool(belongings.counts(tx, whose.theirs))


def language_for(tx: Transaction, whose: Whose, configured: str) -> str:
    """The language to speak to somebody: the configured one, or that of their app."""
    chats = (store.latest_direct(tx, name) for name in whose.theirs.names)
    locale = next((chat.locale for chat in chats if chat is not None), "")
    return language_of(locale if configured == "auto" else configured)


def _markdown(language: str, title: str, said: Iterable[Entry]) -> str:
    parts = [f"# {title}\n"]
    for entry in said:
        if entry.text:
            who = text(language, "export.you" if entry.role == "user" else "export.bot")
            parts.append(f"**{who}** · {to_the_minute(entry.said_or_at, None)}\n\n{entry.text}\n")
    return "\n".join(parts)


def _readme(language: str, whose: Whose, found: Exported, now: int) -> str:
    lines: Sequence[str] = (
        f"# {text(language, 'export.title')}\n",
        text(
            language,
            "export.of",
            person=whose.identity,
            names=", ".join(whose.theirs.names),
            at=to_the_minute(now, None),
        ),
        "",
        text(
            language,
            "export.holds",
            conversations=found.conversations,
            entries=found.entries,
            rooms=found.in_rooms,
            notes=found.notes,
            files=found.files,
        ),
        *([text(language, "export.left_out", count=found.left_out)] if found.left_out else []),
        "",
        text(language, "export.kept"),
        "",
    )
    return "\n".join(lines)
