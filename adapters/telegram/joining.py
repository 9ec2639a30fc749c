"""What a person sent as one and Telegram brings as several messages, put together again: pure.

An album comes as one message a picture, and a long paste as one message each 4096 units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.telegram.pace import Pace
from adapters.telegram.runs import units
from bot.channel import Foreign, Inbound, Media

LONG = 4000  # units of a part of a paste; a client cuts at a good place before 4096
FULL = 4096
MAX_PARTS = 20  # of one message; an album has at most 10
MAX_DATES = 2000  # ms between two parts of a paste as Telegram dates them, in whole seconds


@dataclass(frozen=True, slots=True)
class Part:
    """A message that may belong together with its neighbours; `album` names its album."""

    inbound: Inbound
    album: str = ""


def goes_on(parts: Sequence[Part], part: Part) -> bool:
    """Whether a message continues what these parts of one message began."""
    last = parts[-1]
    if len(parts) >= MAX_PARTS or _author(last.inbound) != _author(part.inbound):
        return False
    if last.album or part.album:
        return last.album == part.album
    gap = part.inbound.sent_at - last.inbound.sent_at
    if _authors(last.inbound) != _authors(part.inbound):
        return False
    return _is_cut(last.inbound) and _is_plain(part.inbound) and 0 <= gap <= MAX_DATES


def patience(parts: Sequence[Part], pace: Pace) -> float:
    """How long to wait for what may follow the last of these parts, in seconds; 0 when nothing."""
    if len(parts) >= MAX_PARTS:
        return 0.0
    if parts[-1].album:
        return pace.album
    return pace.paste if _is_cut(parts[-1].inbound) else 0.0


def whole(parts: Sequence[Part]) -> Inbound:
    """One message of all its parts.

    It has the id of the last part: should a part come so late that the others were stored already,
    and all of them come again after a crash, the whole is another message and nothing is lost.
    """
    first, last = parts[0].inbound, parts[-1].inbound
    if len(parts) == 1:
        return first
    media: tuple[Media, ...] = sum((part.inbound.media for part in parts), ())
    return replace(
        first,
        message_id=last.message_id,
        text=_text([part.inbound.text for part in parts]),
        foreign=_foreign(parts),
        media=media,
        reply_to=next((p.inbound.reply_to for p in parts if p.inbound.reply_to), None),
        mentions_bot=any(part.inbound.mentions_bot for part in parts),
    )


def _text(texts: Sequence[str]) -> str:
    """The words of all parts; one that is full was cut in the middle of a word."""
    words = ""
    for before, text in zip(("", *texts), texts, strict=False):
        words += f"\n{text}" if words and text and units(before) < FULL else text
    return words


def _foreign(parts: Sequence[Part]) -> tuple[Foreign, ...]:
    """What all parts passed on; a long message that was forwarded in pieces is one again."""
    found: list[Foreign] = []
    for part in parts:
        for each in part.inbound.foreign:
            last = found[-1] if found else None
            if (
                last is not None
                and last.kind == each.kind == "forwarded"
                and (last.author == each.author)
            ):
                found[-1] = replace(last, text=_text([last.text, each.text]))
            else:
                found.append(each)
    return tuple(found)


def _author(inbound: Inbound) -> tuple[str, str, str]:
    return inbound.chat, inbound.thread, inbound.sender


def _authors(inbound: Inbound) -> list[tuple[str, str]]:
    """Who wrote what a message passes on; nobody when it is the sender's own."""
    return [(part.kind, part.author) for part in inbound.foreign]


def _is_plain(inbound: Inbound) -> bool:
    return not inbound.media and not inbound.edit_of and not inbound.text.startswith("/")


def _is_cut(inbound: Inbound) -> bool:
    """Whether a message is as long as one that a client had to cut."""
    words = _words(inbound)
    if inbound.media or inbound.edit_of or len(words) < LONG // 2:
        return False
    return units(words) >= LONG


def _words(inbound: Inbound) -> str:
    """What is written in a message, by whomever."""
    forwarded = (part.text for part in inbound.foreign if part.kind == "forwarded")
    return inbound.text or next(forwarded, "")
