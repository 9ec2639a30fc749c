"""`/timezone`: whose clock a person's times go by."""

from __future__ import annotations

import asyncio
from zoneinfo import ZoneInfo

from bot.clock import moment
from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import text
from bot.sessions import repeats, zone_names, zones
from bot.sessions.repeats import Repeat
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

_AUTO = frozenset({"auto", "default", "自动", "默认"})


class TimezoneCommands:
    """`/timezone [CITY|auto]`."""

    async def timezone(self, call: Call) -> Apply:
        """Show where somebody lives, or choose it."""
        if not call.is_direct:
            return saying(text(call.language, "timezone.direct_only"))
        snapshot, person = call.conversation.snapshot, call.person
        configured = snapshot.policy.zone_of(person)
        if configured is not None:
            return saying(_told(call, "configured", configured))
        names = snapshot.names_of(person)
        if not call.rest:
            chosen = any(name in snapshot.books.zones for name in names)
            shown = _told(call, "now" if chosen else _usual(call), call.conversation.zone)
            return saying(f"{shown}\n\n{text(call.language, 'timezone.how')}")
        if call.rest.lower() in _AUTO:

            def forget(unit: UnitOfWork, session: Session) -> Answer:
                zones.drop(unit.tx, names)
                _move(unit, call, snapshot.usual_zone(person))
                words = _told(call, _usual(call), snapshot.usual_zone(person))
                return Answer(words, zones=zones.everything(unit.tx))

            return forget
        # The names of zones are read from the disk.
        zone = await asyncio.to_thread(zone_names.zone_named, call.rest)
        if zone is None:
            meant = await asyncio.to_thread(zone_names.meant, call.rest)
            key = "meant" if meant else "unknown"
            return saying(text(call.language, f"timezone.{key}", zone=meant))

        def choose(unit: UnitOfWork, session: Session) -> Answer:
            zones.drop(unit.tx, (name for name in names if name != person))
            zones.choose(unit.tx, person, zone, call.now)
            _move(unit, call, zone)
            return Answer(_told(call, "set", zone), zones=zones.everything(unit.tx))

        return choose


def _move(unit: UnitOfWork, call: Call, zone: ZoneInfo) -> None:
    """Let what comes again come by these clocks; in a room it goes by ours, whoever asked."""
    snapshot = call.conversation.snapshot

    def zone_of(repeat: Repeat) -> ZoneInfo:
        return zone if repeat.origin.chat_type == "direct" else snapshot.policy.zone

    repeats.retime(unit.tx, zone_of, call.now, snapshot.names_of(call.person))


def _usual(call: Call) -> str:
    """Whose zone that of somebody is who chose none: their browser's, or the program's."""
    snapshot = call.conversation.snapshot
    return "auto" if snapshot.usual_zone(call.person) == snapshot.policy.zone else "browser"


def _told(call: Call, key: str, zone: ZoneInfo) -> str:
    time = f"{moment(call.now, zone):%H:%M}"
    return text(call.language, f"timezone.{key}", zone=zone_names.spoken(zone), time=time)
