"""Office files as they are: a zip archive of XML parts that refer to each other.

Read part by part as a stream of events, so that no tree of it is ever held. What a part may unpack
to is bounded over all of them; a document type, and with it every entity, is refused; nothing that
lies outside of the archive is looked at. Formats: ECMA-376, parts 1 and 2.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO
from xml.parsers import expat

from bot.files.sandbox import Unreadable

MOST_UNPACKED = 200_000_000  # bytes, of all parts that are read
MOST_PARTS = 50_000
_CHUNK = 1 << 16
_ENCRYPTED = 0x1  # a zip archive's flag of a member


@dataclass(frozen=True, slots=True)
class Start:
    """An element begins. Names have no prefix, but "r:" for what refers to another part."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class End:
    """An element ends."""

    name: str


Event = Start | End | str


@dataclass(frozen=True, slots=True)
class Relation:
    """How a part refers to another one: by its id and the last word of its kind."""

    kind: str
    target: str


class Archive:
    """The parts of an Office file."""

    def __init__(self, data: bytes, most: int = MOST_UNPACKED) -> None:
        """Open it.

        Raises:
            Unreadable: it is no such archive, or damaged.
        """
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError):
            raise Unreadable("damaged") from None
        names = self._zip.namelist()
        if len(names) > MOST_PARTS:
            raise Unreadable("unpacks")
        self._names = frozenset(names)
        self._left = most
        top = (r.target for r in self.relations("").values() if r.kind == "officeDocument")
        self.main = next(top, "")
        if self.main not in self._names:
            # A program, a book, a folder of files: many things are zip archives.
            raise Unreadable("damaged" if "[Content_Types].xml" in self._names else "type")
        if self.main.endswith(".bin"):
            raise Unreadable("old")

    def root_of(self, part: str) -> str:
        """The name of a part's outermost element."""
        first = next(self.events(part), None)
        return first.name if isinstance(first, Start) else ""

    def related(self, part: str, kind: str) -> str:
        """The first part of a kind that a part refers to; empty when there is none."""
        found = (r.target for r in self.relations(part).values() if r.kind == kind)
        return next(found, "")

    def relations(self, part: str) -> dict[str, Relation]:
        """What a part refers to within the archive, by id."""
        folder, name = posixpath.split(part)
        found: dict[str, Relation] = {}
        for event in self.events(posixpath.join(folder, "_rels", f"{name}.rels")):
            if not isinstance(event, Start) or event.name != "Relationship":
                continue
            about = event.attributes
            if about.get("TargetMode") == "External":
                continue
            target = posixpath.normpath(posixpath.join("/", folder, about.get("Target", "")))
            kind = about.get("Type", "").rsplit("/", 1)[-1]
            found[about.get("Id", "")] = Relation(kind, target.lstrip("/"))
        return found

    def events(self, part: str) -> Iterator[Event]:
        """What stands in a part, in order; nothing when there is no such part.

        Raises:
            Unreadable: it is damaged, unpacks to too much, or declares entities.
        """
        if part not in self._names:
            return
        try:
            if self._zip.getinfo(part).flag_bits & _ENCRYPTED:
                raise Unreadable("encrypted")
            with self._zip.open(part) as source:
                yield from _parsed(source, self._count)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, expat.ExpatError):
            raise Unreadable("damaged") from None

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Unreadable("unpacks")


def _parsed(source: IO[bytes], count: Callable[[int], None]) -> Generator[Event]:
    found: list[Event] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        found.append(Start(_local(name), {_local(key): a for key, a in attributes.items()}))

    def refuse(*_declaration: object) -> None:
        raise Unreadable("damaged")  # none of these formats has one

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: found.append(End(_local(name)))
    parser.CharacterDataHandler = found.append
    parser.StartDoctypeDeclHandler = refuse
    while chunk := source.read(_CHUNK):
        count(len(chunk))
        parser.Parse(chunk, False)
        yield from found
        found.clear()
    parser.Parse(b"", True)
    yield from found


def _local(name: str) -> str:
    """A name without its namespace, but for references to other parts."""
    space, _, local = name.rpartition(" ")
    return f"r:{local}" if space.endswith("/relationships") and local == "id" else local
