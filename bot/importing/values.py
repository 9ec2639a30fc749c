"""What is read from another program, as values, and careful looks at JSON that anybody wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, cast

from bot.sessions.imported import Source
from bot.unicode import harmless, well_formed

MAX_TEXT = 1_000_000  # characters of one message; what is beyond is left out, and said so
CUT = "\n[… {count} characters were left out by the import]"
_FIRST_MS = 946_684_800_000  # the year 2000: whatever is older is no time of a chat
_LAST_MS = 4_102_444_800_000  # the year 2100


@dataclass(frozen=True, slots=True)
class Said:
    """A message: its id where it comes from, and when it was said, in ms since the epoch."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation with another program.

    `left` counts its messages in which there was nothing to read, such as pictures.
    """

    source: Source
    id: str
    title: str
    said: tuple[Said, ...]
    left: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be read: where it stands, and why."""

    where: str
    why: str


def made(
    source: Source, id_: str, title: str, said: Sequence[Said | None], began_at: int
) -> Talk | Skipped:
    """A conversation of what was found in it.

    A message without a time has that of the one before it, the first that of the conversation; one
    without an id is known by what it says.
    """
    at = began_at or next((each.at for each in said if each is not None and each.at), 0)
    if said and not at:
        return Skipped(title or id_ or "a conversation", "nothing in it says when it was")
    found: dict[str, Said] = {}
    for each in said:
        if each is None:
            continue
        at = each.at or at
        text = within(well_formed(each.text.replace("\0", "")))
        name = each.id or digest(each.role, str(len(found)), text)
        found.setdefault(name, Said(name, each.role, text, at))
    name = id_ or digest(*(each.id for each in found.values()))
    left = sum(each is None for each in said)
    return Talk(source, name, harmless(well_formed(title)), tuple(found.values()), left)


def digest(*parts: str) -> str:
    """Another name for each content."""
    long = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(long.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def within(text: str) -> str:
    """A text that is not too long, with how much was left out."""
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + CUT.format(count=len(text) - MAX_TEXT)


# --- JSON that anybody wrote ----------------------------------------------------------------------


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """The value if it is a list, else an empty one."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def words(value: object) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def seconds(value: object) -> int:
    """Seconds since the epoch as ms; 0 for what is no time of a chat."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return milliseconds(value * 1000) if math.isfinite(value) else 0


def milliseconds(value: object) -> int:
    """Milliseconds since the epoch; 0 for what is no time of a chat."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if _FIRST_MS <= value < _LAST_MS else 0


def moment(value: object) -> int:
    """A time as ISO 8601 writes it, in ms since the epoch; 0 for what is none of a chat."""
    try:
        found = datetime.fromisoformat(words(value))
    except ValueError:
        return 0
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    try:
        return milliseconds(found.timestamp() * 1000)
    except (OverflowError, ValueError):
        return 0
