"""The time zones that people chose with /timezone: plain functions over one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from bot.sessions import journal_records
from bot.storage import Transaction, upsert

log = structlog.get_logger(__name__)


def choose(tx: Transaction, person: str, zone: ZoneInfo, now: int) -> None:
    """Let somebody, by their canonical identity, live in a zone."""
    upsert(tx, "zones", ("person",), {"person": person, "zone": zone.key, "changed_at": now})
    journal_records.keep(tx, "zones", person)


def drop(tx: Transaction, people: Iterable[str]) -> bool:
    """Forget what was chosen under any of somebody's names; False when nothing was."""
    gone = [
        person
        for person in people
        if tx.execute("DELETE FROM zones WHERE person = ? RETURNING person", (person,))
    ]
    for person in gone:
        journal_records.keep(tx, "zones", person)
    return bool(gone)


def everything(tx: Transaction) -> Mapping[str, ZoneInfo]:
    """Everybody's choice, by canonical identity.

    A zone that this machine does not know is left out, as if nothing had been chosen: the row
    stays, for one that does.
    """
    rows = tx.execute("SELECT person, zone FROM zones ORDER BY person")
    found: dict[str, ZoneInfo] = {}
    for person, name in rows:
        try:
            found[person] = ZoneInfo(name)
        except (OSError, ValueError, ZoneInfoNotFoundError):
            log.warning("zone.unknown", zone=name)
    return found
