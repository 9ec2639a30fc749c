"""From a text to what the index stores of it: chunks, and the windows that get vectors. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import PurePosixPath

from bot.memory import chunking, dates
from bot.memory.chunking import Chunk
from bot.memory.layout import NOTES_FOLDER, PRIVATE_FILES, ROOM_FILE

_SEPARATORS = re.compile(r"[-_./]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """A chunk on its way into the index; `day` is an ordinal."""

    chunk: Chunk
    heading: str
    day: int | None
    windows: tuple[str, ...]


def of_note(path: str, text: str) -> list[Draft]:
    """The chunks of a note; `path` is within its space."""
    own_day = dates.first_day(PurePosixPath(path).stem)
    title = _title(path)
    return [
        _draft(chunk, (*title, *chunk.headings), own_day or chunk.day)
        for chunk in chunking.split(text)
    ]


def of_document(text: str, at: int) -> list[Draft]:
    """The chunks of something that was said at a time, in milliseconds."""
    day = datetime.fromtimestamp(at / 1000, UTC).date() if at else None
    return [_draft(chunk, chunk.headings, day) for chunk in chunking.split(text)]


def windows_of(heading: str, body: str) -> tuple[str, ...]:
    """The texts that get vectors for a chunk: its windows, under what they are about."""
    above = "" if dates.named(heading) else heading
    return tuple(
        f"{above}\n{window.text}" if above else window.text for window in chunking.windows(body)
    )


def _draft(chunk: Chunk, headings: tuple[str, ...], day: date | None) -> Draft:
    heading = " · ".join(dict.fromkeys(headings))
    ordinal = day.toordinal() if day else None
    return Draft(chunk, heading, ordinal, windows_of(heading, chunk.text))


def _title(path: str) -> tuple[str, ...]:
    """What a topic's file name says; the names of daily and curated notes say nothing."""
    if path in PRIVATE_FILES or path == ROOM_FILE or dates.named(PurePosixPath(path).stem):
        return ()
    inner = path.removeprefix(f"{NOTES_FOLDER}/").removesuffix(".md")
    words = _SEPARATORS.sub(" ", inner).strip()
    return (words,) if words else ()
