"""The time zones that people chose with /timezone, and those their browsers are in.

Plain functions over one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from bot.storage import Row, Transaction, upsert

log = structlog.get_logger(__name__)


def choose(tx: Transaction, person: str, zone: ZoneInfo, now: int) -> None:
    """Let somebody, by their canonical identity, live in a zone."""
    upsert(tx, "zones", ("person",), {"person": person, "zone": zone.key, "changed_at": now})
    tx.publish("books")


def tell(tx: Transaction, person: str, zone: ZoneInfo, now: int) -> None:
    """Store the zone that somebody's browser reports."""
    upsert(tx, "told_zones", ("person",), {"person": person, "zone": zone.key, "changed_at": now})
    tx.publish("books")


def named(name: str) -> ZoneInfo | None:
    """The zone of a name that a browser said; None for what this machine does not know."""
    try:
        return ZoneInfo(name) if name else None
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
    """Where everybody's browser is, by canonical identity."""
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
