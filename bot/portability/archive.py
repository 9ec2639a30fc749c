"""The file of a backup: a tar in gzip, its first member what it is, its last what it holds.

Any tar opens it. Whoever reads it here believes nothing: names, kinds and sizes are checked before
a byte is written, and what was written must be what the manifest at the end says, or all of it is
refused.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from bot import __version__
from bot.errors import ArchiveError, ArchiveRefused, StorageError
from bot.portability import passphrase as program
from bot.storage import files, schema

# Work that takes long, in a thread, and ends soon when nobody waits for it any more.

T = TypeVar("T")

Advance = Callable[[int], object]
"""Hears how many bytes more were read or written; what it raises ends the work."""


Copying = Callable[[int, int], None]
"""Hears how many steps of a copy are done, and of how many."""


class Stopped(ArchiveError):
    """It was not done: the program ended meanwhile."""


def unheard(_size: int) -> None:
    """Nobody is told how far it is."""


def nobody(_done: int, _total: int) -> None:
    """Nobody is told how far a copy is."""


async def in_thread(work: Callable[[Advance], T], advance: Advance = unheard) -> T:
    """Run `work` in a thread; when this task is cancelled, it ends before the task does.

    Raises:
        Exception: what `work` raises.
    """
    stopped = threading.Event()

    def step(size: int) -> None:
        if stopped.is_set():
            raise Stopped
        advance(size)

    running = asyncio.ensure_future(asyncio.to_thread(work, step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        running.exception()  # what came of it is nobody's any more
        raise


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
    """The origin of an archive: the version that made it, when (ms since the epoch), and from what.

    `schema` is the version of its tables, `origin` "folder" or "server".
    """

    made_at: int
    origin: str
    schema: int = schema.VERSION
    program: str = __version__
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of an archive; `changed_at` is in ns since the epoch."""

    size: int
    sha256: str
    changed_at: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of an archive: its files by name, and how many rows its tables have."""

    head: Head
    members: Mapping[str, ArchivedFile]
    rows: Mapping[str, int]

    @property
    def digest(self) -> str:
        """Another one for each backup."""
        facts = [(name, self.members[name].sha256) for name in sorted(self.members)]
        return hashlib.sha256(_json([asdict(self.head), facts])).hexdigest()


class _Hashed:
    """A file that is read once, with the digest of all of it."""

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
        self._members: dict[str, ArchivedFile] = {}
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

    def _put(self, name: str, source: IO[bytes], changed_at: int) -> ArchivedFile:
        start = source.tell()
        info = tarfile.TarInfo(name)
        info.size = source.seek(0, os.SEEK_END) - start
        info.mode = files.FILE_MODE
        info.mtime = changed_at // 1_000_000_000
        source.seek(start)
        through = _Hashed(source, self._advance)
        self._tar.addfile(info, cast("IO[bytes]", through))
        return ArchivedFile(info.size, through.digest.hexdigest(), changed_at)


def unpack(
    source: IO[bytes], name: str, place: Callable[[str], Path | None], advance: Advance = unheard
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
    members: dict[str, ArchivedFile] = field(default_factory=dict[str, ArchivedFile])

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

    def _extract(self, info: tarfile.TarInfo) -> ArchivedFile:
        if info.name in self.members or not _may_be(info.name):
            raise altered(self.name, f"{info.name!r} is no name for a file of it")
        target = self.place(info.name)
        if target is None:
            return ArchivedFile(info.size, self._copy(info, None), 0)
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
        return ArchivedFile(info.size, digest, 0)

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
        """The manifest, which must match what was found."""
        stated = {name: ArchivedFile(**facts) for name, facts in _table(said["members"]).items()}
        for name in sorted({*stated, *self.members}):
            one, other = stated.get(name), self.members.get(name)
            if one is None or other is None or (one.size, one.sha256) != (other.size, other.sha256):
                raise altered(self.name, f"{name!r} is not what it was")
            if (path := self.place(name)) is not None:
                os.utime(path, ns=(one.changed_at, one.changed_at))
        rows = {str(name): int(count) for name, count in _table(said["rows"]).items()}
        return Manifest(head, stated, rows)


class _Metered:
    """A reader that gives no more than was allowed, so that nothing hostile fills the memory."""

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
    """A stranger's text, made fit for a line on a terminal."""
    return "".join(sign for sign in str(said)[:20] if sign.isalnum() or sign in ".-+")


def _table(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(found)
    return cast("dict[str, Any]", found)


# A backup that only a passphrase opens, by age.
#
# A sealed backup is a tar of two files that the tool `age` opens too: a key that the passphrase
# opens, `identity.age`, and the archive for that key. age takes a passphrase for what fits into
# memory only, and a backup need not.

IDENTITY = "identity.age"
SEALED = "backup.tar.gz.age"
_BLOCK = 512  # bytes, of a tar
_MAX_IDENTITY = 10_000  # bytes


def seal(plain: IO[bytes], target: IO[bytes], passphrase: str, advance: Advance) -> None:
    """Write all of a file into another one, sealed; it must be one that can be sought in.

    Raises:
        OSError: the disk does not take it.
        ArchiveError: there is no memory for the passphrase.
    """
    age = _age()
    identity = age.x25519.Identity.generate()
    key = _with("seal", passphrase, f"{identity}\n".encode())
    target.write(_header(IDENTITY, len(key)) + key + bytes(-len(key) % _BLOCK))
    at = target.tell()
    target.write(bytes(_BLOCK))  # the header, once the size is known
    through = _Through(plain, target, advance)
    try:
        age.encrypt_io(through, through, [identity.to_public()])
    except age.EncryptError:  # it keeps the words of an error only
        raise through.failed or ArchiveError("The backup could not be sealed.") from None
    size = target.tell() - at - _BLOCK
    target.write(bytes(-size % _BLOCK + 2 * _BLOCK))
    target.seek(at)
    target.write(_header(SEALED, size))
    target.seek(0, os.SEEK_END)


def open_sealed(
    source: IO[bytes], name: str, passphrase: str, target: IO[bytes], advance: Advance
) -> None:
    """Write the archive that is sealed in a file into another file.

    Raises:
        ArchiveRefused: it is no backup, or the passphrase is another one.
        OSError: the disk does not take it.
    """
    age = _age()
    length = source.seek(0, os.SEEK_END)
    source.seek(0)
    try:
        key = source.read(_member(source, IDENTITY, _MAX_IDENTITY))
        source.read(-len(key) % _BLOCK)
        size = _member(source, SEALED, 1 << 62)
    except (tarfile.TarError, ValueError) as exc:
        raise refused(name, FOREIGN) from exc
    if source.tell() + size + -size % _BLOCK + 2 * _BLOCK > length:
        raise refused(name, CUT)
    try:
        identity = age.x25519.Identity.from_str(_with("open", passphrase, key).decode().strip())
    except (age.IdentityError, ValueError) as exc:
        raise ArchiveRefused(f"This passphrase does not open {name}. Nothing was changed.") from exc
    through = _Through(source, target, advance, size)
    try:
        age.decrypt_io(through, through, [identity])
    except (age.DecryptError, OSError) as exc:
        raise through.failed or refused(name, DAMAGED) from exc


def is_sealed(source: IO[bytes]) -> bool:
    """True when a passphrase is needed; where it is no backup at all that turns out later."""
    start = source.read(len(IDENTITY))
    source.seek(0)
    return start == IDENTITY.encode()


class _Through:
    """The next so many bytes of a file, to be written to another, and why that failed."""

    def __init__(
        self, source: IO[bytes], target: IO[bytes], advance: Advance, size: int = 1 << 62
    ) -> None:
        self._source, self._target, self._advance = source, target, advance
        self._rest = size
        self.failed: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(data)
        return data

    def write(self, data: bytes) -> int:
        try:
            self._advance(0)
            return self._target.write(data)
        except Exception as exc:
            self.failed = exc
            raise

    def flush(self) -> None:
        self._target.flush()


def _age() -> Any:
    import pyrage  # pyright: ignore[reportMissingTypeStubs]  # noqa: PLC0415 - rarely used

    return pyrage


def _with(what: Literal["seal", "open"], passphrase: str, data: bytes) -> bytes:
    """Seal or open something short with a passphrase.

    Raises:
        ValueError: it is another passphrase.
        ArchiveError: there is no memory for it.
    """
    lines = (what, passphrase.encode().hex(), data.hex(), "")
    done = subprocess.run(  # noqa: S603 - a program of ours, and nothing else
        [sys.executable, "-P", program.__file__],
        input="\n".join(lines).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an operator's Ctrl-C is for this program
        check=False,
    )
    if done.returncode == program.WRONG:
        raise ValueError(what)
    if done.returncode:
        raise ArchiveError(
            "The passphrase could not be used: that takes half a gigabyte of memory for a second. "
            "Nothing was changed."
        )
    return done.stdout


def _member(source: IO[bytes], name: str, most: int) -> int:
    """The size of the member that begins here; it must be this one."""
    info = tarfile.TarInfo.frombuf(source.read(_BLOCK), "utf-8", "strict")
    if info.name != name or not 0 < info.size <= most:
        raise ValueError(name)
    return info.size


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)
