"""The exports of other programs: a ZIP, a folder or a file, known by what is in it.

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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from itertools import chain, islice
from pathlib import Path
from typing import IO, cast

from bot.errors import ImportRefused
from bot.importing import formats, storing
from bot.importing.openclaw import home
from bot.importing.values import Found, Skipped, Talk
from bot.invocation import confidant
from bot.memory import layout
from bot.sessions.entries import NAMES, Source


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a kind of object: which program it is of, the fields it is known by, and how."""

    source: Source
    fields: frozenset[str]
    read: Callable[[Mapping[str, object]], Iterator[Found]]


# Everything that can be read: the first one whose fields an object has is the one to read it.
READERS = (
    Reader("chatgpt", frozenset({"mapping"}), formats.chatgpt_talk),
    Reader("claude", frozenset({"chat_messages"}), formats.claude_talk),
    Reader("claude", frozenset({"conversations_memory"}), formats.claude_memory),
    Reader("claude", frozenset({"uuid", "name", "docs"}), formats.claude_project),
    Reader("openwebui", frozenset({"id", "chat"}), formats.openwebui_talk),
    Reader("librechat", frozenset({"conversationId", "messages"}), formats.librechat_talk),
    Reader("astrbot", frozenset({"cid", "content"}), formats.astrbot_talk),
    Reader("telegram", frozenset({"type", "id", "messages"}), formats.telegram_talk),
    Reader("jsonl", frozenset({"messages"}), formats.plain_talk),
    Reader("jsonl", frozenset({"memory"}), formats.plain_memory),
)


def reader_of(data: Mapping[str, object]) -> Reader | None:
    """The reader of an object; None if its kind is unknown."""
    return next((reader for reader in READERS if reader.fields <= data.keys()), None)


MAX_ELEMENT = 32_000_000  # characters of one conversation
DAMAGED = "it is damaged, cut off or longer than 32 MB"
_MAX_TRIES = 100  # failures to find the next one in what could not be read
_BETWEEN = re.compile(r"[\s,\]}]*")
# Where a conversation may begin in what could not be read.
_BEGINNING = re.compile(
    r"(?:[,\[]\s*(?=\{\s*\"(?:title|uuid|id|name|conversation_id)\"\s*:)|\n(?=\{))"
)
_LONGEST_BEGINNING = 100
# Where the chats begin in all that Telegram holds of somebody.
_CHATS = re.compile(r'"chats"\s*:\s*\{[^{}\[\]]*\[')
_HEAD = 4_000_000  # characters in which they have to begin


def elements(
    chunks: Iterable[bytes], limit: int = MAX_ELEMENT
) -> Iterator[dict[str, object] | str]:
    """The objects of a list that comes in pieces, and `DAMAGED` for each that cannot be read.

    They may also stand one behind the other, as in JSONL. Behind one that cannot be read only those
    count that are of a known kind: nothing says what else begins there. Anything else has none.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    pieces = filter(None, map(decode, chunks))
    text = next((found for piece in pieces if (found := piece.lstrip())), "")
    read = json.JSONDecoder().raw_decode
    text, is_inside = _begun(text, pieces)
    at = 0
    is_lost, tries = False, 0
    while tries < _MAX_TRIES:
        at = cast("re.Match[str]", _BETWEEN.match(text, at)).end()
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
            found = cast("dict[str, object]", value) if isinstance(value, dict) else None
            if found is not None and (not is_lost or reader_of(found)):
                is_lost = False
                yield found
            elif is_inside:  # what stands behind the chats
                return
            elif not is_lost:
                yield DAMAGED


def _begun(text: str, pieces: Iterator[str]) -> tuple[str, bool]:
    """A text from where its objects begin, and whether they stand inside of another one."""
    if not text.startswith("{"):
        return text[1:] if text.startswith("[") else "", False
    text += _some(pieces, _HEAD - len(text))
    chats = _CHATS.search(text)
    return (text[chats.end() :], True) if chats is not None else (text, False)


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

_LONGEST_END = 66_000  # bytes at the end of a ZIP in which it says where its contents are
# What is looked into, in a ZIP or a folder; what it is, its content says.
_NAME = re.compile(
    r"(?:.*/)?(?:conversations(?:-\d{1,6})?|(?:memories|projects)(?:/[^/]*)?|result)\.json"
    r"|(?:.*/)?(?:_chat|WhatsApp[^/]*)\.txt",
    re.IGNORECASE,
)
_START = 4_000  # bytes of a file by which it is known whether it is a chat of WhatsApp
_TRIED = 20  # objects of a file that are looked at to know it

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Export:
    """An export that was looked at; `size` is how much is read of it, in bytes.

    `me` is the name that whoever imports has in it, where it is of a messenger, and `zone` that of
    times which have none.
    """

    path: Path
    source: Source
    members: tuple[str, ...]
    size: int
    me: str = ""
    zone: tzinfo = UTC

    def talks(self, advance: Advance = lambda _size: None) -> Iterator[Found]:
        """Its contents, one after another; unreadable parts are reported and skipped.

        Raises:
            ImportRefused: it is no export of this program, or cannot be read.
        """
        if self.source == "markdown":
            for name in self.members:
                yield storing.remembered(self.path, Path(name))
                advance(Path(name).stat().st_size)
            return
        try:
            with _opener(self.path) as opened:
                for name in self.members:
                    with opened(name) as member:
                        found = self._of_member(_chunks(member, advance), name)
                        yield from (_seen_by(one, self.me) for one in found)
        except _BROKEN as exc:
            raise _unreadable(self.path, exc) from exc

    def _of_member(self, chunks: Iterator[bytes], name: str) -> Iterator[Found]:
        data = next(chunks, b"")
        if not formats.is_whatsapp(_text(data[:_START])):
            yield from _of_list(chain((data,), chunks), Path(name).name)
            return
        data = b"".join((data, *islice(chunks, MAX_ELEMENT // CHUNK)))
        if len(data) > MAX_ELEMENT:
            yield Skipped(Path(name).name, DAMAGED)
            return
        title = Path(name).stem
        if title == "_chat":
            title = self.path.stem if _is_packed(self.path) else Path(name).parent.name
        yield formats.whatsapp_talk(_text(data), title, self.zone)


_BROKEN = (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError)


def _seen_by(found: Found, me: str) -> Found:
    """A conversation in which what somebody said is their own."""
    if not isinstance(found, Talk) or not any(one.by for one in found.said):
        return found
    said = tuple(
        replace(one, role="user", by="") if me and one.by == me else one for one in found.said
    )
    is_known = any(one.role == "user" for one in said)
    return replace(found, said=said, assumed=found.assumed or ("" if is_known else NOBODY))


NOBODY = "In some conversations no name is known to be yours: --me NAME says which one is"


def look(path: Path, source: Source | None = None, me: str = "", zone: tzinfo = UTC) -> Export:
    """Look what an export is of, and how large, without reading all of it.

    Raises:
        ImportRefused: it is none, or not of the program it should be, or it cannot be read.
    """
    members, size = _members(path)
    if not members:
        raise ImportRefused(
            f"There is no conversations.json in {path.name}, nor anything else that is read of an "
            f"export. {_NOTHING}"
        )
    if size > MAX_BYTES:
        raise ImportRefused(
            f"{path.name} holds {size:,} bytes of conversations, and at most {MAX_BYTES:,} are "
            f"read. {_NOTHING}"
        )
    try:
        found = _source(path, members)
    except _BROKEN as exc:
        raise _unreadable(path, exc) from exc
    if found is None:
        raise ImportRefused(f"{path.name} is no export of a program that is known here. {_NOTHING}")
    if source is not None and found != source:
        raise ImportRefused(
            f"{path.name} is an export of {NAMES[found]}, not of {NAMES[source]}. {_NOTHING}"
        )
    return Export(path, found, members, size, me, zone)


def _source(path: Path, members: Sequence[str]) -> Source | None:
    """The program that the first object of a known kind comes from."""
    if members[0].lower().endswith(layout.SUFFIX):
        return "markdown"
    with _opener(path) as opened:
        for name in members:
            with opened(name) as member:
                first = member.read(CHUNK)
                if formats.is_whatsapp(_text(first[:_START])):
                    return "whatsapp"
                whole = chain((first,), _chunks(member, lambda _size: None))
                found = islice(elements(whole), _TRIED)
                readers = (reader_of(each) for each in found if not isinstance(each, str))
                if reader := next(filter(None, readers), None):
                    return reader.source
    return None


def _members(path: Path) -> tuple[tuple[str, ...], int]:
    """The files of an export that are read, and how much is read of them."""
    try:
        path.stat()
        if not _is_packed(path):
            return _unpacked(path)
        if _directory_size(path) > MAX_DIRECTORY:
            raise ImportRefused(f"{path.name} holds more files than any export. {_NOTHING}")
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
    except _BROKEN as exc:
        raise _unreadable(path, exc) from exc
    if len(found) > MAX_MEMBERS:
        raise ImportRefused(f"{path.name} holds more than {MAX_MEMBERS:,} files. {_NOTHING}")
    wanted = [info for info in found if _is_wanted(info.filename)]
    for info in wanted:
        if info.flag_bits & 1:
            raise ImportRefused(f"{path.name} is encrypted. Unpack it and pack it anew. {_NOTHING}")
        if info.file_size > RATIO_FROM and info.file_size > MAX_RATIO * info.compress_size:
            raise ImportRefused(
                f"{path.name} would unpack to {info.file_size:,} bytes, {MAX_RATIO} times what it "
                f"holds and more. No data export does that, so it was not read. {_NOTHING}"
            )
    size = sum(info.file_size for info in wanted)
    return tuple(sorted(info.filename for info in wanted)), size


_NOTHING = "Nothing was changed."


def _directory_size(path: Path) -> int:
    """The length of the table of contents of a ZIP, as it states it; 0 if there is none."""
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


def _unpacked(path: Path) -> tuple[tuple[str, ...], int]:
    """Some browsers unpack what they download."""
    if any((path / name).is_file() for name in home.SETTINGS):
        raise ImportRefused(
            f"{path} is a folder of OpenClaw: use `{confidant(f'import openclaw {path}')}`."
        )
    try:
        folders = (path, path / "memories", path / "projects")
        files = [file for each in folders if each.is_dir() for file in sorted(each.iterdir())]
        wanted = [
            file
            for file in files or [path]
            if file.is_file() and (file == path or _is_wanted(file.relative_to(path).as_posix()))
        ] or storing.of_folder(path)
        size = sum(file.stat().st_size for file in wanted)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    return tuple(map(str, wanted)), size


def _is_packed(path: Path) -> bool:
    return not path.is_dir() and (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path))


@contextmanager
def _opener(path: Path) -> Generator[Callable[[str], IO[bytes]]]:
    """Yields a function that opens the files of an export, packed or not."""
    if not _is_packed(path):
        yield lambda name: Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        return
    with zipfile.ZipFile(path) as archive:
        yield archive.open


def _is_wanted(name: str) -> bool:
    posix = name.replace("\\", "/")
    return bool(_NAME.fullmatch(posix)) and "__MACOSX" not in posix.split("/")


def _chunks(member: IO[bytes], advance: Advance) -> Iterator[bytes]:
    while chunk := member.read(CHUNK):
        advance(len(chunk))
        yield chunk


def _text(data: bytes) -> str:
    return data.decode("utf-8-sig", "replace")


def _of_list(chunks: Iterator[bytes], name: str) -> Iterator[Found]:
    for number, found in enumerate(elements(chunks), start=1):
        reader = None if isinstance(found, str) else reader_of(found)
        if isinstance(found, str):
            yield Skipped(f"conversation {number} of {name}", found)
        elif reader is None:
            yield Skipped(f"entry {number} of {name}", "it is of no kind that is known")
        else:
            yield from reader.read(found)


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
