"""Chats of people that messengers export: `result.json` of Telegram, texts of WhatsApp. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Final

from bot.importing.values import (
    Found,
    Left,
    Said,
    Skipped,
    Talk,
    digest,
    items,
    made,
    mapping,
    milliseconds,
    moment,
    seconds,
    words,
)

_CHANNELS: Final = frozenset({"public_channel", "private_channel"})


def telegram_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A chat of Telegram's: in one of two, the other has its id; in a group, names tell."""
    kind, title = words(data.get("type")), words(data.get("name"))
    if kind in _CHANNELS:
        yield Skipped(title or "a channel", "a channel is no conversation")
        return
    chat = str(data.get("id"))
    others = f"user{chat}" if kind in {"personal_chat", "bot_chat"} else ""
    is_own = kind == "saved_messages"
    said = [
        _telegram_said(mapping(each), others, is_own=is_own) for each in items(data.get("messages"))
    ]
    yield made("telegram", chat, title or ("Saved messages" if is_own else ""), said, 0)


def _telegram_said(message: Mapping[str, object], others: str, *, is_own: bool) -> Said | Left:
    """A message, or why it is left out; in a chat of two `others` is who is not the person."""
    if message.get("type") != "message":
        return Left.SERVICE if message.get("type") == "service" else Left.BROKEN
    parts = message.get("text")
    runs = [words(each) or words(mapping(each).get("text")) for each in items(parts)]
    text = (words(parts) or "".join(runs)).strip()
    if not text:
        return Left.WORDLESS
    if forwarded := words(message.get("forwarded_from")):
        text = f"[forwarded from {forwarded}]\n{text}"
    sender, name = words(message.get("from_id")), words(message.get("from"))
    is_own = is_own or bool(others and sender and sender != others)
    stamp = words(message.get("date_unixtime"))
    at = seconds(int(stamp)) if stamp.isascii() and stamp.isdigit() and len(stamp) < 12 else 0
    at = at or moment(message.get("date"))
    by = "" if is_own else name or sender or "somebody"
    return Said(str(message.get("id") or ""), "user" if is_own else "assistant", text, at, by)


# --- WhatsApp -------------------------------------------------------------------------------------
#
# A line for each message, `[01.05.24, 09:14:00] Ada: hello` on an iPhone and `01/05/2024, 09:14 -
# Ada: hello` on Android, and more lines where it has more. The order of a date is that of the phone
# and stands nowhere: that of the whole chat is the one in which most dates are possible, and the
# fewest go back.

_DATE = r"(?P<{0}1>\d{{1,4}})[./-] ?(?P<{0}2>\d{{1,2}})[./-] ?(?P<{0}3>\d{{1,4}})\.?"
_TIME = (
    r"(?P<{0}h>\d{{1,2}})[:.](?P<{0}m>\d\d)(?:[:.](?P<{0}s>\d\d))?"
    r"(?:[ \u202f\u00a0]?(?P<{0}p>[AaPp])\.?[ \u202f\u00a0]?[Mm]\.?)?"
)
_ROW = re.compile(
    r"[\u200e\u200f\ufeff]*+(?:"
    rf"\[{_DATE.format('a')},?[ \u202f]{_TIME.format('a')}\] "
    rf"|{_DATE.format('b')},?[ \u202f]{_TIME.format('b')} [-–] "
    r")(?P<rest>.*)"
)
_NAMED = re.compile(r"(?P<name>[^:]{1,100}): ?(?P<text>.*)", re.DOTALL)
_BY_PROGRAM = "\u200e"  # before what WhatsApp itself put into a message
_FIRST_YEAR = 2009  # of WhatsApp
_ORDERS: Final = {"day/month/year": "321", "month/day/year": "312", "year/month/day": "123"}

_Row = tuple[re.Match[str], list[str]]


def is_whatsapp(start: str) -> bool:
    """True for the beginning of a chat of WhatsApp."""
    return any(map(_ROW.match, start.split("\n", 5)[:5]))


def whatsapp_talk(text: str, title: str, zone: tzinfo) -> Talk:
    """A chat of WhatsApp, in which everybody goes by a name; its file is called after the other."""
    rows: list[_Row] = []
    for line in text.split("\n"):
        row = _ROW.match(line)
        if row is not None:
            rows.append((row, [row["rest"].rstrip("\r")]))
        elif rows:
            rows[-1][1].append(line.rstrip("\r"))
    order, times, is_sure = _ordered(rows, zone)
    found = [_NAMED.fullmatch("\n".join(lines)) for _, lines in rows]
    names = {one["name"].strip("\u200e\u200f~\u202f ") for one in found if one is not None}
    other = next((name for name in names if title.endswith(name)), "") if len(names) == 2 else ""
    said: list[Said | Left | None] = []
    seen = Counter[str]()
    for one, at in zip(found, times, strict=True):
        if one is None:
            said.append(Left.SERVICE)
            continue
        name = one["name"].strip("\u200e\u200f~\u202f ")
        text = one["text"].split(_BY_PROGRAM, 1)[0].strip()
        if not text or (text[0] == "<" and text[-1] == ">"):
            said.append(Left.WORDLESS)
            continue
        id_ = digest(str(at), name, text)
        seen[id_] += 1
        is_own = bool(other) and name != other
        by, role = ("", "user") if is_own else (name, "assistant")
        said.append(Said(f"{id_}{seen[id_]}", role, text, at, by))
    assumed = f"Dates of WhatsApp are read as {order}"
    assumed += "" if is_sure else ", as nothing in a chat says what they are"
    name = title or digest(*sorted(names))
    return replace(made("whatsapp", name, title, said, 0), assumed=assumed)


def _ordered(rows: Sequence[_Row], zone: tzinfo) -> tuple[str, list[int], bool]:
    """The order of the dates of a chat, its times by it, and whether no other fits as well."""
    tried: list[tuple[int, int, str, list[int]]] = []
    for name, order in _ORDERS.items():
        times = [_time(row, order, zone) for row, _ in rows]
        known = [at for at in times if at]
        back = sum(later < earlier for earlier, later in pairwise(known))
        tried.append((len(times) - len(known), back, name, times))
    best = min(tried, key=lambda one: one[:2])
    is_sure = all(one is best or one[:2] > best[:2] or one[3] == best[3] for one in tried)
    return best[2], best[3], is_sure


def _time(row: re.Match[str], order: str, zone: tzinfo) -> int:
    """The time of a message in ms since the epoch; 0 if its date is invalid in this order."""
    kind = "a" if row["ah"] else "b"
    year, month, day = (int(row[f"{kind}{at}"]) for at in order)
    hour, half = int(row[f"{kind}h"]), (row[f"{kind}p"] or "").lower()
    hour = hour % 12 + 12 * (half == "p") if half else hour
    year += 2000 * (year < 100)
    try:
        when = datetime(
            year, month, day, hour, int(row[f"{kind}m"]), int(row[f"{kind}s"] or 0), tzinfo=zone
        )
    except ValueError:
        return 0
    return milliseconds(when.timestamp() * 1000) if year >= _FIRST_YEAR else 0
