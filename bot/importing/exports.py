"""The data exports of ChatGPT and Claude: a ZIP in which `conversations.json` is.

Nothing is unpacked to the disk, so no name in it leads anywhere. What is read is bounded: a ZIP
that would unpack to far more than it holds is refused before it is read.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, cast

from bot.errors import ImportRefused
from bot.importing import chatgpt, claude
from bot.importing.values import Skipped, Talk
from bot.sessions.imported import NAMES, Source

MAX_ELEMENT = 32_000_000  # characters of one conversation
DAMAGED = "it is damaged, cut off or longer than 32 MB"
_MAX_TRIES = 100  # failures to find the next one in what could not be read
_BETWEEN = re.compile(r"[\s,\]}]*")
# Where a conversation may begin in what could not be read.
_BEGINNING = re.compile(r"[,\[]\s*(?=\{\s*\"(?:title|uuid|id|conversation_id)\"\s*:)")
_LONGEST_BEGINNING = 100


class NoList(ValueError):
    """It is no list at all."""


def elements(
    chunks: Iterable[bytes], mark: str, limit: int = MAX_ELEMENT
) -> Iterator[dict[str, object] | str]:
    """The objects of a list that comes in pieces, and `DAMAGED` for each that cannot be read.

    Behind one that cannot be read only those count that have the name `mark`: nothing says what
    else begins there.

    Raises:
        NoList: it is no list.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    pieces = filter(None, map(decode, chunks))
    text = next((found for piece in pieces if (found := piece.lstrip())), "")
    if not text.startswith("["):
        raise NoList
    read = json.JSONDecoder().raw_decode
    at, is_lost, tries = 1, False, 0
    while tries < _MAX_TRIES:
        found = _BETWEEN.match(text, at)
        at = found.end() if found is not None else at
        try:
            value, end = cast("tuple[object, int]", read(text, at))
        except (ValueError, RecursionError):
            held = text[at:]
            # Twice as much each time: what is read again stays within what there is.
            if more := _some(pieces, min(len(held) or 1, limit - len(held))):
                text, at = held + more, 0
                continue
            tries += 1
            text, at = _next(held[1:], pieces), 0
            if held and not is_lost:
                yield DAMAGED
            is_lost = True
            if not text:
                return
        else:
            at = end
            if isinstance(value, dict) and (mark in value or not is_lost):
                is_lost = False
                yield cast("dict[str, object]", value)
            elif not is_lost:
                yield DAMAGED


def _some(pieces: Iterator[str], least: int) -> str:
    """The next pieces, of so many characters or more if there are; none when `least` is not > 0."""
    taken: list[str] = []
    while least > 0 and (piece := next(pieces, "")):
        taken.append(piece)
        least -= len(piece)
    return "".join(taken)


def _next(text: str, pieces: Iterator[str]) -> str:
    """The text from where the next conversation may begin; empty when there is none."""
    while (found := _BEGINNING.search(text)) is None:
        more = next(pieces, "")
        if not more:
            return ""
        text = text[-_LONGEST_BEGINNING:] + more
    return text[found.end() :]


MAX_BYTES = 16_000_000_000  # of all that is read of an export
MAX_MEMBERS = 200_000  # files in it
MAX_DIRECTORY = 64_000_000  # bytes of its table of contents, which is read at once
MAX_RATIO = 200  # how much more than it holds a file may unpack to …
RATIO_FROM = 50_000_000  # … if it unpacks to more bytes than this
CHUNK = 1_000_000  # bytes that are read at a time

_FORMATS: Mapping[Source, ModuleType] = {"chatgpt": chatgpt, "claude": claude}
_LONGEST_END = 66_000  # bytes at the end of a ZIP in which it says where its contents are
_NAME = re.compile(r"conversations(?:-\d{1,6})?\.json", re.IGNORECASE)

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Export:
    """A data export that was looked at; `size` is how much is read of it, in bytes."""

    path: Path
    source: Source
    members: tuple[str, ...]
    size: int

    def talks(self, advance: Advance = lambda _size: None) -> Iterator[Talk | Skipped]:
        """Its conversations, one after another; what cannot be read is told, and read over.

        Raises:
            ImportRefused: it is no export of this program, or cannot be read.
        """
        form = _FORMATS[self.source]
        try:
            with _opener(self.path) as opened:
                for name in self.members:
                    with opened(name) as member:
                        chunks = _chunks(member, advance)
                        yield from _of_list(chunks, Path(name).name, form.MARK, form.talk_of)
        except _BROKEN as exc:
            raise _unreadable(self.path, exc) from exc


_BROKEN = (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError)


def look(path: Path, source: Source) -> Export:
    """Look at a data export without reading it.

    Raises:
        ImportRefused: it is none, or it cannot be read.
    """
    if path.is_dir() or path.suffix.lower() == ".json":
        return _look_unpacked(path, source)
    try:
        if _directory_size(path) > MAX_DIRECTORY:
            raise ImportRefused(f"{path.name} holds more files than any export. {_NOTHING}")
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
    except _BROKEN as exc:
        raise _unreadable(path, exc) from exc
    if len(found) > MAX_MEMBERS:
        raise ImportRefused(f"{path.name} holds more than {MAX_MEMBERS:,} files. {_NOTHING}")
    wanted = [info for info in found if _is_wanted(info.filename)]
    if not wanted:
        raise _none_in(path, source)
    for info in wanted:
        if info.flag_bits & 1:
            raise ImportRefused(f"{path.name} is encrypted. Unpack it and pack it anew. {_NOTHING}")
        if info.file_size > RATIO_FROM and info.file_size > MAX_RATIO * info.compress_size:
            raise ImportRefused(
                f"{path.name} would unpack to {info.file_size:,} bytes, {MAX_RATIO} times what it "
                f"holds and more. No data export does that, so it was not read. {_NOTHING}"
            )
    size = sum(info.file_size for info in wanted)
    return _bounded(Export(path, source, tuple(sorted(info.filename for info in wanted)), size))


_NOTHING = "Nothing was changed."


def _directory_size(path: Path) -> int:
    """How long the table of contents of a ZIP says it is; 0 where there is none."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _LONGEST_END)
        file.seek(start)
        tail = file.read(_LONGEST_END)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 16:
        return 0
    said = [int.from_bytes(tail[at + 12 : at + 16], "little")]
    large = tail.rfind(b"PK\x06\x06", 0, at)  # of one that is larger, or says so
    if large >= 0:
        said.append(int.from_bytes(tail[large + 40 : large + 48], "little"))
    # Longer than the file it cannot be: then the ZIP is torn, and says so itself.
    return max(each if each <= size else 0 for each in said)


def _look_unpacked(path: Path, source: Source) -> Export:
    """Some browsers unpack what they download."""
    try:
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        wanted = [
            file for file in found if file.is_file() and (file == path or _is_wanted(file.name))
        ]
        size = sum(file.stat().st_size for file in wanted)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    if not wanted:
        raise _none_in(path, source)
    return _bounded(Export(path, source, tuple(map(str, wanted)), size))


def _bounded(export: Export) -> Export:
    if export.size > MAX_BYTES:
        raise ImportRefused(
            f"{export.path.name} holds {export.size:,} bytes of conversations, and at most "
            f"{MAX_BYTES:,} are read. {_NOTHING}"
        )
    return export


def _none_in(path: Path, source: Source) -> ImportRefused:
    return ImportRefused(
        f"There is no conversations.json in {path.name}: it is no data export of {NAMES[source]}. "
        f"{_NOTHING}"
    )


@contextmanager
def _opener(path: Path) -> Generator[Callable[[str], IO[bytes]]]:
    """What opens the files of an export, packed or not."""
    if path.is_dir() or path.suffix.lower() == ".json":
        yield lambda name: Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        return
    with zipfile.ZipFile(path) as archive:
        yield archive.open


def _is_wanted(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return bool(_NAME.fullmatch(parts[-1])) and "__MACOSX" not in parts


def _chunks(member: IO[bytes], advance: Advance) -> Iterator[bytes]:
    while chunk := member.read(CHUNK):
        advance(len(chunk))
        yield chunk


def _of_list(
    chunks: Iterator[bytes],
    name: str,
    mark: str,
    talk_of: Callable[[Mapping[str, object]], Talk | Skipped],
) -> Iterator[Talk | Skipped]:
    try:
        for number, found in enumerate(elements(chunks, mark), start=1):
            if isinstance(found, str):
                yield Skipped(f"conversation {number} of {name}", found)
            else:
                yield talk_of(found)
    except NoList:
        raise ImportRefused(f"{name} is no list of conversations. {_NOTHING}") from None


def _unreadable(path: Path, exc: Exception) -> ImportRefused:
    if isinstance(exc, OSError) and exc.strerror:
        return ImportRefused(f"{path} cannot be read: {exc.strerror}.")
    if isinstance(exc, zipfile.BadZipFile) and not zipfile.is_zipfile(path):
        return ImportRefused(
            f"{path.name} is no ZIP. Name the file that came with the export, as it was. {_NOTHING}"
        )
    return ImportRefused(
        f"{path.name} is damaged: download it again. What was imported of it before stays, and the "
        "same command with a whole file goes on."
    )
