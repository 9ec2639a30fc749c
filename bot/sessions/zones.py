"""The time zones that people chose with /timezone, and those their browsers are in.

Plain functions over one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import structlog

from bot.settings.checks import nearest
from bot.storage import Row, Transaction, upsert

log = structlog.get_logger(__name__)


def choose(tx: Transaction, person: str, zone: ZoneInfo, now: int) -> None:
    """Let somebody, by their canonical identity, live in a zone."""
    upsert(tx, "zones", person=person, zone=zone.key, changed_at=now)
    tx.publish("books")


def tell(tx: Transaction, person: str, zone: ZoneInfo, now: int) -> None:
    """Store the zone that somebody's browser reports."""
    upsert(tx, "told_zones", person=person, zone=zone.key, changed_at=now)
    tx.publish("books")


def named(name: str) -> ZoneInfo | None:
    """The zone of a name that a browser said; None for what this machine does not know."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return None


def drop(tx: Transaction, people: Iterable[str]) -> bool:
    """Forget what was chosen under any of somebody's names; False when nothing was."""
    gone = [
        person
        for person in people
        if tx.execute("DELETE FROM zones WHERE person = ? RETURNING person", (person,))
    ]
    if gone:
        tx.publish("books")
    return bool(gone)


def everything(tx: Transaction) -> Mapping[str, ZoneInfo]:
    """Everybody's choice, by canonical identity.

    A zone that this machine does not know is left out, as if nothing had been chosen: the row
    stays, for one that does.
    """
    return _known(tx.execute("SELECT person, zone FROM zones ORDER BY person"))


def told(tx: Transaction) -> Mapping[str, ZoneInfo]:
    """The time zone of everybody's browser, by canonical identity."""
    return _known(tx.execute("SELECT person, zone FROM told_zones ORDER BY person"))


def _known(rows: Iterable[Row]) -> Mapping[str, ZoneInfo]:
    found: dict[str, ZoneInfo] = {}
    for person, name in rows:
        zone = named(name)
        if zone is None:
            log.warning("zone.unknown", zone=name)
        else:
            found[person] = zone
    return found


# --- by their names -------------------------------------------------------------------------------


MAX_NAME = 60  # characters

# Cities people name that no zone is called after, and how Chinese calls those that one is.
_CITIES: Final = {
    **dict.fromkeys(("beijing", "shenzhen", "guangzhou", "china"), "Asia/Shanghai"),
    **dict.fromkeys(("北京", "上海", "深圳", "广州", "中国", "北京时间"), "Asia/Shanghai"),
    **dict.fromkeys(("delhi", "mumbai", "bangalore", "india", "印度"), "Asia/Kolkata"),
    **dict.fromkeys(("san francisco", "seattle", "旧金山", "洛杉矶"), "America/Los_Angeles"),
    **dict.fromkeys(("washington", "boston", "miami", "纽约"), "America/New_York"),
    **dict.fromkeys(("munich", "hamburg", "frankfurt", "cologne", "柏林"), "Europe/Berlin"),
    **dict.fromkeys(("barcelona", "马德里"), "Europe/Madrid"),
    **dict.fromkeys(("milan", "罗马"), "Europe/Rome"),
    **dict.fromkeys(("osaka", "kyoto", "东京"), "Asia/Tokyo"),
    **dict.fromkeys(("geneva", "苏黎世"), "Europe/Zurich"),
    # What people write behind a time; "CST", "IST" and "BST" mean several.
    **dict.fromkeys(("est", "edt", "et", "eastern", "美东"), "America/New_York"),
    **dict.fromkeys(("cdt", "ct", "central"), "America/Chicago"),
    **dict.fromkeys(("mst", "mdt", "mt", "mountain"), "America/Denver"),
    **dict.fromkeys(("pst", "pdt", "pt", "pacific", "美西"), "America/Los_Angeles"),
    **dict.fromkeys(("cet", "cest"), "Europe/Berlin"),
    **dict.fromkeys(("eet", "eest"), "Europe/Helsinki"),
    **dict.fromkeys(("aest", "aedt"), "Australia/Sydney"),
    "msk": "Europe/Moscow",
    "jst": "Asia/Tokyo",
    "kst": "Asia/Seoul",
    "gmt": "UTC",
    "hkt": "Asia/Hong_Kong",
    "sgt": "Asia/Singapore",
    "香港": "Asia/Hong_Kong",
    "台北": "Asia/Taipei",
    "新加坡": "Asia/Singapore",
    "首尔": "Asia/Seoul",
    "曼谷": "Asia/Bangkok",
    "伦敦": "Europe/London",
    "巴黎": "Europe/Paris",
    "莫斯科": "Europe/Moscow",
    "悉尼": "Australia/Sydney",
    "墨尔本": "Australia/Melbourne",
    "多伦多": "America/Toronto",
    "温哥华": "America/Vancouver",
}
_OFFSET = re.compile(r"(?:utc|gmt)\s*([+-])\s*([0-9]{1,2})(?::?00)?", re.IGNORECASE)
_FIXED = re.compile(r"Etc/GMT([+-][0-9]{1,2})")
_HOURS = range(-12, 15)  # that places on Earth are from UTC


@cache
def _installed() -> frozenset[str]:
    """The zones somebody may live in: without abbreviations, which mean different ones."""
    return frozenset({name for name in available_timezones() if "/" in name} | {"UTC"})


@cache
def _by_name() -> dict[str, str]:
    """Zones by what they are called, in lower case: "europe/berlin" and "berlin"."""
    found: dict[str, str] = {}
    for name in sorted(_installed(), key=lambda name: (name.count("/") != 1, name)):
        if name.startswith("Etc/") and name != "Etc/UTC":
            continue
        spoken = name.replace("_", " ").lower()
        found.setdefault(spoken.rpartition("/")[2], name)
        found[spoken] = name
    return {**found, **{city: name for city, name in _CITIES.items() if name in _installed()}}


def zone_named(text: str) -> ZoneInfo | None:
    """The zone that is meant, such as "Europe/Berlin", "new york", "北京" or "UTC+8".

    The first call reads the names of all zones from the disk.
    """
    said = " ".join(text.replace("_", " ").split()).lower()
    if len(said) > MAX_NAME:
        return None
    if offset := _OFFSET.fullmatch(said):
        hours = int(offset[1] + offset[2])
        if hours not in _HOURS:
            return None
        # In these names the sign is the other one.
        return ZoneInfo(f"Etc/GMT{-hours:+d}" if hours else "UTC")
    name = _by_name().get(said)
    return ZoneInfo(name) if name else None


def spoken(zone: tzinfo | None) -> str:
    """A zone as people read it: its name, or its hours from UTC."""
    name = str(zone)
    if hours := _FIXED.fullmatch(name):
        return f"UTC{-int(hours[1]):+d}"
    return name.removeprefix("Etc/")


def meant(text: str) -> str:
    """The name that was probably meant, or empty."""
    names: Collection[str] = _installed()
    said = text.strip().replace(" ", "_")[:MAX_NAME]
    whole = nearest(said, names)
    if whole is not None:
        return whole
    cities = _by_name()
    city = nearest(said.replace("_", " "), cities)
    return cities[city.lower()] if city is not None else ""
