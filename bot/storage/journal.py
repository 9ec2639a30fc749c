"""The journal's file: what must outlive the database and stands in no transcript, as JSON lines.

The table `journal` has the same lines and where each begins, so the file's length tells whether it
is whole. The database's writer adds to it after each commit that noted something, and only then
lets the caller go on: what was answered "done" is in the file, on the disk. Other processes (the
command line) write too; whoever comes first adds what is missing, under the file's lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import structlog

from bot import __version__
from bot.errors import StorageError
from bot.storage import Transaction, files

SUFFIX = ".journal.jsonl"
FORMAT = 1
HEADER = b'{"type":"journal","version":%d}\n' % FORMAT
LINES_AT_ONCE = 1_000
MAX_LINE = 1_000_000  # bytes; a longer line is none of ours
MAX_BYTES = 512_000_000  # of a file; what is beyond is kept, but not read back

_HEADER = re.compile(rb'\{"type":"journal","version":(\d{1,9})[,}]')

log = structlog.get_logger(__name__)


def file_of(database: Path) -> Path:
    """The journal's file of a database: beside it, and of its name."""
    return database.with_suffix(SUFFIX)


def add(tx: Transaction, line: str) -> None:
    """Put a line at the end of the journal's table."""
    start = end(tx)
    tx.execute("INSERT INTO journal(start, line) VALUES (?, ?)", (start, line))


def end(tx: Transaction) -> int:
    """How long the file must be, in bytes; a journal without lines may have no file."""
    rows = tx.execute("SELECT start, line FROM journal ORDER BY seq DESC LIMIT 1")
    return int(rows[0][0]) + len(_bytes(rows[0][1])) if rows else len(HEADER)


def data(tx: Transaction, start: int) -> bytes:
    """Some of what the file must hold from the beginning of a line on; empty at the end."""
    rows = tx.execute(
        "SELECT line FROM journal WHERE start >= ? ORDER BY start LIMIT ?", (start, LINES_AT_ONCE)
    )
    return b"".join(_bytes(row[0]) for row in rows)


def follow(tx: Transaction, path: Path) -> None:
    """Add to the file what the table has beyond it, and let it reach the disk.

    A file that is not what the table says is left alone: the next start looks at it.

    Raises:
        OSError: the disk does not take it; what is missing is added the next time.
    """
    with locked(path) as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            size = file.write(HEADER)
        starts = tx.execute("SELECT min(start) FROM journal WHERE start >= ?", (size,))
        if starts[0][0] != size:
            if end(tx) != size:
                log.warning("journal.other_than_expected", size=size)
            return
        _extend(tx, file, size)


def must_be_known(path: Path) -> None:
    """Make sure that no newer version of the program wrote the file; one that is torn passes.

    Raises:
        StorageError: one did; nothing is begun with half of what was forgotten.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = _HEADER.match(file.readline(MAX_LINE))
    except FileNotFoundError:
        return
    if found and int(found[1]) > FORMAT:
        raise StorageError(
            f"The journal {path} has format {int(found[1])}, made by a newer Confidant; this is "
            f"{__version__} and knows format {FORMAT}. Nothing was changed: start the newer one "
            "again, or go back to a backup from before the upgrade."
        )


def is_whole(tx: Transaction, path: Path) -> bool:
    """True when the file is as long as it must be and ends as it must; it is not read whole."""
    rows = tx.execute("SELECT start, line FROM journal ORDER BY seq DESC LIMIT 1")
    start, last = (int(rows[0][0]), _bytes(rows[0][1])) if rows else (0, HEADER)
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(len(last) + 1) == last
    except FileNotFoundError:
        return not rows


def beyond(tx: Transaction, path: Path) -> int | None:
    """From where on the file says something that the table does not, in bytes; None when nowhere.

    A line that is not finished, but begins as it must, says nothing else.
    """
    try:
        with path.open("rb") as file:
            position = _shared(tx, file)
            return None if _is_beginning(tx, file, position) else position
    except FileNotFoundError:
        return None


def lines(path: Path, position: int) -> list[bytes]:
    """Some lines of the file from a position on, with their line breaks; none at its end.

    One that is too long comes in pieces. What lies beyond `MAX_BYTES` is not read.
    """
    if position >= MAX_BYTES or not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(position)
        return [line for _ in range(LINES_AT_ONCE) if (line := file.readline(MAX_LINE))]


def digests(tx: Transaction) -> frozenset[int]:
    """The hashes of all lines of the table, for as long as this process lives."""
    return frozenset(hash(row[0]) for row in tx.execute("SELECT line FROM journal"))


def repair(tx: Transaction, path: Path) -> Path | None:
    """Let the file be what the table says; one that has anything else is set aside: its new name.

    Raises:
        OSError: the disk does not take it; the next start tries again.
    """
    aside = None
    with locked(path) as file:
        if not _is_beginning(tx, file, _shared(tx, file)):
            aside = _free_name(path)
            path.rename(aside)
    with locked(path) as file:
        position = _shared(tx, file)
        file.truncate(position)
        file.seek(position)
        if position == 0:
            position = file.write(HEADER)
        _extend(tx, file, position)
    files.sync_folder(path.parent)
    return aside


def write_anew(tx: Transaction, path: Path) -> None:
    """Let the file be what the table says, whatever it said before: nothing of that is kept.

    Raises:
        OSError: the disk does not take it; the file is as it was.
    """
    if end(tx) == len(HEADER) and not path.exists():
        return
    beside = path.with_name(f".{path.name}.tmp")
    with locked(path):
        with open(beside, "w+b", opener=files.opener) as file:
            _extend(tx, file, file.write(HEADER))
        beside.replace(path)
        files.sync_folder(path.parent)


def drop_kept(path: Path, is_gone: Callable[[bytes], bool]) -> None:
    """Take lines out of the files that were set aside of a journal's.

    Raises:
        OSError: the disk does not take it; each file is as it was, or done.
    """
    for kept in path.parent.glob(f"{path.name}.kept-*"):
        lines = kept.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if not is_gone(line.strip(b"\0\n"))]
        if len(left) < len(lines):
            beside = kept.with_name(f".{kept.name}.tmp")
            with open(beside, "wb", opener=files.opener) as file:
                file.writelines(left)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(kept)
    files.sync_folder(path.parent)


@contextmanager
def locked(path: Path) -> Generator[BinaryIO]:
    """The file, to be read and changed by nobody else meanwhile; made if it is not there.

    Raises:
        OSError: it cannot be used.
    """
    while True:
        # Not "a+": what is torn off must be written over.
        with os.fdopen(files.opener(str(path), os.O_RDWR | os.O_CREAT), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not path.exists() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                continue  # it was set aside while this waited
            yield file
            return


def _extend(tx: Transaction, file: BinaryIO, position: int) -> None:
    while more := data(tx, position):
        position += file.write(more)
    file.flush()
    os.fsync(file.fileno())


def _shared(tx: Transaction, file: BinaryIO) -> int:
    file.seek(0)
    if file.read(len(HEADER)) != HEADER:
        return 0
    position = len(HEADER)
    while wanted := data(tx, position):
        found = file.read(len(wanted))
        if found != wanted:
            for line in wanted.splitlines(keepends=True):
                if not found.startswith(line):
                    break
                found = found[len(line) :]
                position += len(line)
            return position
        position += len(wanted)
    return position


def _is_beginning(tx: Transaction, file: BinaryIO, shared: int) -> bool:
    """True when a file has nothing else after what it shares with the table."""
    file.seek(shared)
    wanted = data(tx, shared) if shared else HEADER
    return wanted.startswith(file.read(len(wanted) + 1))


def _bytes(line: str) -> bytes:
    return f"{line}\n".encode()


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.kept-{number}")).exists():
        number += 1
    return kept
