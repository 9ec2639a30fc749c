"""The file of a backup: a tar in gzip, its first member what it is, its last what it holds.

Any tar opens it. Whoever reads it here believes nothing: names, kinds and sizes are checked before
a byte is written, and what was written must be what the manifest at the end says, or all of it is
refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from bot import __version__
from bot.errors import ArchiveRefused, StorageError
from bot.portability.work import Advance, unheard
from bot.storage import files, schema

FORMAT = 1
HEAD = "confidant-backup.json"
MANIFEST = "manifest.json"
DATABASE = "confidant.db"
JOURNAL = "confidant.journal.jsonl"  # in backups made before there was a log of changes
SETTINGS = "settings.toml"
TRANSCRIPTS = "sessions"
WORKSPACE = "workspace"

# What is said of a file that is not restored.
FOREIGN = "is no backup that Confidant made"
CUT = "ends too early: it was not copied or written whole"
DAMAGED = "is damaged and cannot be read"

CHUNK = 256 * 1024  # bytes that are read, packed or written at a time
RESERVE = 64_000_000  # bytes of a disk that a restore leaves free
_MAX_MEMBERS = 5_000_000
_MAX_DEPTH = 64
_MAX_PATH = 4_000  # bytes
_MAX_SAID = 100_000  # bytes of the head; of the manifest, beside what it says of each file
_MAX_MOMENT = 8_000_000_000_000  # ms since the epoch: the year 2223
_MAX_BETWEEN = 1_000_000  # bytes between two members: a longer header is none of ours
_LEVEL = 6
# What the readers of gzip, tar and JSON say to bytes that are none.
_UNREADABLE = (
    *(zlib.error, gzip.BadGzipFile, tarfile.TarError),
    *(ValueError, TypeError, KeyError, OverflowError, RecursionError),
)


@dataclass(frozen=True, slots=True)
class Head:
    """What an archive is: made by which version, when (ms since the epoch), and from what.

    `schema` is the version of its tables, `origin` "folder" or "server".
    """

    made_at: int
    origin: str
    schema: int = schema.VERSION
    program: str = __version__
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive; `changed_at` is in ns since the epoch."""

    size: int
    sha256: str
    changed_at: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive holds: its files by name, and how many rows its tables have."""

    head: Head
    members: Mapping[str, Member]
    rows: Mapping[str, int]

    @property
    def digest(self) -> str:
        """Another one for each backup."""
        facts = [(name, self.members[name].sha256) for name in sorted(self.members)]
        return hashlib.sha256(_json([asdict(self.head), facts])).hexdigest()


class _Hashed:
    """A file that is read once, and what all of it comes to."""

    def __init__(self, source: IO[bytes], advance: Advance) -> None:
        self._source = source
        self._advance = advance
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self.digest.update(data)
        self._advance(len(data))
        return data


class Writer:
    """Writes an archive; `finish` makes it whole."""

    def __init__(self, target: IO[bytes], head: Head, advance: Advance = unheard) -> None:
        self.head = head
        self._advance = advance
        self._members: dict[str, Member] = {}
        self._packed = gzip.GzipFile("", "wb", _LEVEL, target, mtime=0)
        self._tar = tarfile.open(fileobj=self._packed, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `finish` closes it
        self._put(HEAD, io.BytesIO(_json(asdict(head))), head.made_at * 1_000_000)

    def add(self, name: str, source: IO[bytes], changed_at: int = 0) -> None:
        """Add a file, from where `source` is to its end; it must not grow shorter meanwhile.

        Raises:
            OSError: it cannot be read or written.
        """
        changed_at = changed_at or self.head.made_at * 1_000_000
        self._members[name] = self._put(name, source, changed_at)

    def finish(self, rows: Mapping[str, int]) -> Manifest:
        """Write what the archive holds, and end it.

        Raises:
            OSError: the disk does not take it.
        """
        members = {name: asdict(member) for name, member in self._members.items()}
        said = io.BytesIO(_json({"members": members, "rows": dict(rows)}))
        self._put(MANIFEST, said, self.head.made_at * 1_000_000)
        self._tar.close()
        self._packed.close()
        return Manifest(self.head, self._members, rows)

    def _put(self, name: str, source: IO[bytes], changed_at: int) -> Member:
        start = source.tell()
        info = tarfile.TarInfo(name)
        info.size = source.seek(0, os.SEEK_END) - start
        info.mode = files.FILE_MODE
        info.mtime = changed_at // 1_000_000_000
        source.seek(start)
        through = _Hashed(source, self._advance)
        self._tar.addfile(info, cast("IO[bytes]", through))
        return Member(info.size, through.digest.hexdigest(), changed_at)


def unpack(
    source: IO[bytes],
    name: str,
    place: Callable[[str], Path | None],
    advance: Advance = unheard,
) -> Manifest:
    """Write the files of an archive to where `place` says, and make sure that all is as it was.

    What has no place is only looked at. Nothing is written that is there already, and only plain
    files are. What was written before something turned out to be wrong is for the caller to remove.

    Raises:
        ArchiveRefused: it is none, damaged, altered, or of a newer version; `name` is told.
        OSError: the disk does not take it.
    """
    metered = _Metered(source)
    try:
        try:
            tar = tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r|", bufsize=CHUNK)  # noqa: SIM115 - it closes nothing
        except _UNREADABLE as exc:
            raise refused(name, FOREIGN) from exc
        return _Reading(tar, metered, name, place, advance).run()
    except EOFError as exc:
        raise refused(name, CUT) from exc
    except _UNREADABLE as exc:
        raise refused(name, DAMAGED) from exc


@dataclass
class _Reading:
    tar: tarfile.TarFile
    metered: _Metered
    name: str
    place: Callable[[str], Path | None]
    advance: Advance
    members: dict[str, Member] = field(default_factory=dict[str, Member])

    def run(self) -> Manifest:
        head = self._head()
        while (info := self._next()) is not None and info.name != MANIFEST:
            if len(self.members) >= _MAX_MEMBERS:
                raise altered(self.name, "it holds too many files")
            self.members[info.name] = self._extract(info)
        if info is None:
            raise EOFError
        said = self._said(info, sum(300 + 6 * len(name) for name in self.members))
        if self._next() is not None or not self._is_over():
            raise altered(self.name, "there is something behind its end")
        return self._compared(head, said)

    def _head(self) -> Head:
        info = self.tar.next()
        if info is None or info.name != HEAD or not info.isreg():
            raise refused(self.name, FOREIGN)
        said = self._said(info)
        if said.get("format") != FORMAT or not isinstance(said.get("schema"), int):
            raise newer(self.name, said)
        must_be_known(self.name, said["schema"], said)
        made_at = said.get("made_at")
        if not isinstance(made_at, int) or not 0 <= made_at <= _MAX_MOMENT:
            raise refused(self.name, DAMAGED)
        return Head(made_at, str(said.get("origin")), said["schema"], str(said["program"]))

    def _next(self) -> tarfile.TarInfo | None:
        self.metered.allow(_MAX_BETWEEN)
        # Each is kept by the reader, and there may be millions.
        cast("Any", self.tar).members.clear()
        info = self.tar.next()
        if info is not None and (info.type != tarfile.REGTYPE or info.issparse()):
            raise altered(self.name, f"{info.name!r} is no plain file")
        return info

    def _is_over(self) -> bool:
        """True when nothing but the padding of a tar is left; its checksum is looked at, too."""
        rest = cast("Any", self.tar).fileobj
        while data := rest.read(CHUNK):
            if data.strip(b"\0"):
                return False
        return True

    def _said(self, info: tarfile.TarInfo, beside: int = 0) -> dict[str, Any]:
        if info.size > _MAX_SAID + beside:
            raise refused(self.name, DAMAGED)
        found = io.BytesIO()
        self._copy(info, found)
        return _table(json.loads(found.getvalue()))

    def _extract(self, info: tarfile.TarInfo) -> Member:
        if info.name in self.members or not _may_be(info.name):
            raise altered(self.name, f"{info.name!r} is no name for a file of it")
        target = self.place(info.name)
        if target is None:
            return Member(info.size, self._copy(info, None), 0)
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            free = shutil.disk_usage(target.parent).free
            if info.size > free - RESERVE:
                raise ArchiveRefused(
                    f"{self.name} needs more room than there is: {info.name!r} is "
                    f"{info.size:,} bytes, and {free:,} are free. Nothing was changed."
                )
            with open(target, "xb", opener=files.opener) as file:
                digest = self._copy(info, file)
                file.flush()
                os.fsync(file.fileno())
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
            raise altered(self.name, f"{info.name!r} is in it twice") from exc
        return Member(info.size, digest, 0)

    def _copy(self, info: tarfile.TarInfo, target: IO[bytes] | None) -> str:
        self.metered.allow(info.size + _MAX_BETWEEN)
        source = self.tar.extractfile(info)
        hashed, rest = _Hashed(cast("IO[bytes]", source), self.advance), info.size
        while rest:
            data = hashed.read(min(CHUNK, rest))
            if not data:
                raise EOFError
            if target is not None:
                target.write(data)
            rest -= len(data)
        return hashed.digest.hexdigest()

    def _compared(self, head: Head, said: Mapping[str, Any]) -> Manifest:
        """What the manifest says, which must be what was found."""
        stated = {name: Member(**facts) for name, facts in _table(said["members"]).items()}
        for name in sorted({*stated, *self.members}):
            one, other = stated.get(name), self.members.get(name)
            if one is None or other is None or (one.size, one.sha256) != (other.size, other.sha256):
                raise altered(self.name, f"{name!r} is not what it was")
            if (path := self.place(name)) is not None:
                os.utime(path, ns=(one.changed_at, one.changed_at))
        rows = {str(name): int(count) for name, count in _table(said["rows"]).items()}
        return Manifest(head, stated, rows)


class _Metered:
    """What gives no more than was allowed, so that nothing hostile fills the memory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = gzip.GzipFile(fileobj=source, mode="rb")
        self._rest = _MAX_BETWEEN

    def allow(self, size: int) -> None:
        """Let so much be read from here on; what is read ahead is part of it."""
        self._rest = size + CHUNK

    def read(self, size: int) -> bytes:
        if self._rest <= 0:
            raise tarfile.ReadError("a header without end")
        data = self._source.read(size)
        self._rest -= len(data)
        return data


def refused(name: str, why: str) -> ArchiveRefused:
    """An archive that is not restored, as it stands."""
    return ArchiveRefused(f"{name} {why}. Nothing was changed.")


def altered(name: str, how: str) -> ArchiveRefused:
    """It is not as it was made."""
    return refused(name, f"was altered or is damaged: {how}")


def newer(name: str, said: Mapping[str, Any]) -> ArchiveRefused:
    """A later version of the program made it."""
    program, tables = _short(said.get("program")), _short(said.get("schema"))
    return ArchiveRefused(
        f"{name} was made by a newer Confidant ({program}, tables of version {tables}); this is "
        f"{__version__} and knows version {schema.VERSION}. Nothing was changed: restore it with "
        "the newer one."
    )


def must_be_known(name: str, version: int, said: Mapping[str, Any]) -> None:
    """Make sure that a backup's tables are of a version that is read.

    Raises:
        ArchiveRefused: they are not.
    """
    if version > schema.VERSION:
        raise newer(name, said)
    try:
        schema.must_be_known(version, name)
    except StorageError as exc:
        raise ArchiveRefused(str(exc)) from exc


def _may_be(name: str) -> bool:
    """True when an archive may have a file of this name: a place of ours, and nowhere else."""
    first, *rest = parts = name.split("/")
    if {"", ".", ".."} & {*parts} or "\0" in name or len(os.fsencode(name)) > _MAX_PATH:
        return False
    if rest:
        return len(rest) < (_MAX_DEPTH if first == WORKSPACE else 2 if first == TRANSCRIPTS else 0)
    return name in {DATABASE, JOURNAL, SETTINGS} or name.startswith(f"{JOURNAL}.kept-")


def _json(what: object) -> bytes:
    # Names of files may be no text; this JSON has them all the same.
    return f"{json.dumps(what, indent=1)}\n".encode()


def _short(said: object) -> str:
    """What a stranger's file says, for a line on a terminal."""
    return "".join(sign for sign in str(said)[:20] if sign.isalnum() or sign in ".-+")


def _table(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(found)
    return cast("dict[str, Any]", found)
