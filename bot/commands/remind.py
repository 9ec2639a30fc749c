"""`/remind`, `/task`, `/reminders` and `/timezone`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import get_args
from zoneinfo import ZoneInfo

from bot.channel import Channel
from bot.clock import moment
from bot.commands.base import Apply, Call, CommandAnswer, command, saying
from bot.commands.link import may_manage
from bot.delivery.outbox import Extra
from bot.sessions import due_time, reminders, repeats, zones
from bot.sessions.due_time import Every, Next, Problem, When, shown
from bot.sessions.recurrence import MIN_TASK_MINUTES, described
from bot.sessions.reminders import MAX_TEXT, MAX_WAITING, NEVER, ReplyTarget
from bot.sessions.repeats import MAX_REPEATS, MAX_TASKS, Agenda, Change, Kind, Repeat
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

_CHANGE = re.compile(
    r"(?:(?P<cancel>cancel|delete|remove|取消|删除)|(?P<pause>pause|暂停)"
    r"|(?P<resume>resume|continue|继续|恢复))"
    r"\s*(?:(?:#|第)?(?P<number>\d{1,3})(?:条|个)?|(?P<id>[re]\d{1,18}))",
    re.IGNORECASE,
)
_LIST = re.compile(r"list|show|列表|清单|查看", re.IGNORECASE)
_ONE = re.compile(r"(?:show\s+|查看\s*)?(?:#|第)?(\d{1,3})(?:条|个)?", re.IGNORECASE)


class RemindCommands:
    """`/remind`, `/reminders`."""

    def __init__(self, expect: Callable[[int], None], channels: Mapping[str, Channel]) -> None:
        self._expect = expect
        self._channels = channels

    @command()
    async def remind(self, call: Call) -> Apply:
        """Set a reminder, once or recurring."""
        return await self._either(call, "text")

    @command()
    async def task(self, call: Call) -> Apply:
        """Set a recurring task."""
        return await self._either(call, "task")

    async def _either(self, call: Call, kind: Kind) -> Apply:
        """Set a reminder or task, or act like `/reminders` ("/remind list")."""
        if any(words.fullmatch(call.rest) for words in (_LIST, _CHANGE)):
            return await self.reminders(call)
        found = due_time.parse(call.rest, moment(call.now, call.conversation.zone))
        if isinstance(found, Next):
            return self._kept_about(call, kind, found)
        return await self._kept(call, kind, found)

    async def _kept(self, call: Call, kind: Kind, found: When | Every | Problem) -> Apply:
        if isinstance(found, Problem):
            return saying(_explained(call, found))
        first = found.at if isinstance(found, When) else found.first
        if kind == "task" and (refused := _refused(call, found)):
            return saying(refused)
        if not found.rest:
            return saying(call.text("reminder.what", when=shown(call.language, first)))
        if len(found.rest) > MAX_TEXT:
            return saying(call.text("reminder.long", most=MAX_TEXT))
        here = call.conversation
        # Only those who manage a room may set something recurring in it.
        is_free = isinstance(found, When) or call.is_direct
        if not is_free and not await may_manage(self._channels, here):
            return saying(call.text("repeat.not_admin"))
        due_at = int(first.timestamp() * 1000)
        self._expect(due_at)
        target = ReplyTarget(
            call.place.key, call.person, call.inbound.address, call.language, here.origin
        )

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            at = shown(call.language, first)
            if isinstance(found, Every):
                again = repeats.add(
                    unit.tx,
                    target,
                    found.rest,
                    found.series,
                    zone=here.zone,
                    now=call.now,
                    kind=kind,
                )
                if again is None:
                    full = call.text("repeat.full", most=MAX_REPEATS, tasks=MAX_TASKS)
                    return CommandAnswer(full)
                often, key = described(call.language, found.series), f"repeat.set_{kind}"
                return CommandAnswer(call.text(key, often=often, when=at, text=again.text))
            added = reminders.add(unit.tx, target, found.rest, due_at, call.now)
            if added is None:
                return CommandAnswer(call.text("reminder.full", most=MAX_WAITING))
            return CommandAnswer(call.text("reminder.set", when=at, text=added.text))

        return apply

    def _kept_about(self, call: Call, kind: Kind, found: Next) -> Apply:
        """Set a reminder that comes when its topic does."""
        if kind == "task":
            return saying(call.text("task.once"))
        if len(found.rest) > MAX_TEXT:
            return saying(call.text("reminder.long", most=MAX_TEXT))
        here = call.conversation
        where = (call.place.key, call.person, call.inbound.address)
        target = ReplyTarget(*where, call.language, here.origin)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            given = (unit.tx, target, found.rest, NEVER, call.now)
            if (added := reminders.add(*given, about=found.about)) is None:
                return CommandAnswer(call.text("reminder.full", most=MAX_WAITING))
            said = {"about": added.about, "text": added.text}
            return CommandAnswer(call.text("reminder.set_about", **said))

        return apply

    @command(is_private=True)
    async def reminders(self, call: Call) -> Apply:
        """List the reminders of this conversation; show, cancel, pause or resume one."""
        if not call.rest or _LIST.fullmatch(call.rest):
            return lambda unit, _session: _listed(_agenda(unit, call))
        if asked := _ONE.fullmatch(call.rest):
            return lambda unit, _session: _listed(_agenda(unit, call), int(asked[1]))
        asked = _CHANGE.fullmatch(call.rest)
        if asked is None:
            return saying(call.text("reminder.usage"))
        change = next(each for each in get_args(Change) if asked[each])

        def apply(unit: UnitOfWork, _session: Session) -> CommandAnswer:
            agenda = _agenda(unit, call)
            number = agenda.number_of(asked["id"]) if asked["id"] else int(asked["number"])
            return CommandAnswer(agenda.change(change, number))

        return apply


def _listed(agenda: Agenda, number: int = 0) -> CommandAnswer:
    """The list, or one reminder, with buttons."""
    words = agenda.show(number) if number else agenda.list()
    return CommandAnswer(words, extra=Extra(agenda.buttons(number)))


def _agenda(unit: UnitOfWork, call: Call) -> Agenda:
    here = call.conversation
    return Agenda(unit.tx, call.place.key, call.language, here.zone, call.now)


def _refused(call: Call, found: When | Every) -> str:
    """The reason why this cannot be a task; empty if it can."""
    if isinstance(found, When):
        return call.text("task.once")
    if found.series.rule.least_minutes < MIN_TASK_MINUTES:
        return call.text("task.often", minutes=MIN_TASK_MINUTES)
    return ""


def _explained(call: Call, problem: Problem) -> str:
    words = call.text(f"reminder.problem_{problem.value}")
    return f"{words}\n\n{call.text('reminder.examples')}"


_AUTO = frozenset({"auto", "default", "自动", "默认"})


class TimezoneCommands:
    """`/timezone [CITY|auto]`."""

    @command(is_private=True)
    async def timezone(self, call: Call) -> Apply:
        """Show the person's time zone, or set it."""
        if not call.is_direct:
            return saying(call.text("timezone.direct_only"))
        snapshot, person = call.conversation.snapshot, call.person
        configured = snapshot.policy.zone_of(person)
        if configured is not None:
            return saying(_told(call, "configured", configured))
        names = snapshot.names_of(person)
        if not call.rest:
            chosen = any(name in snapshot.books.zones for name in names)
            shown = _told(call, "now" if chosen else _usual(call), call.conversation.zone)
            return saying(f"{shown}\n\n{call.text('timezone.how')}")
        if call.rest.lower() in _AUTO:

            def forget(unit: UnitOfWork, session: Session) -> CommandAnswer:
                zones.drop(unit.tx, names)
                _move(unit, call, snapshot.usual_zone(person))
                words = _told(call, _usual(call), snapshot.usual_zone(person))
                return CommandAnswer(words, zones=zones.everything(unit.tx))

            return forget
        # The names of zones are read from the disk.
        zone = await asyncio.to_thread(zones.zone_named, call.rest)
        if zone is None:
            meant = await asyncio.to_thread(zones.meant, call.rest)
            key = "meant" if meant else "unknown"
            return saying(call.text(f"timezone.{key}", zone=meant))

        def choose(unit: UnitOfWork, session: Session) -> CommandAnswer:
            zones.drop(unit.tx, (name for name in names if name != person))
            zones.choose(unit.tx, person, zone, call.now)
            _move(unit, call, zone)
            return CommandAnswer(_told(call, "set", zone), zones=zones.everything(unit.tx))

        return choose


def _move(unit: UnitOfWork, call: Call, zone: ZoneInfo) -> None:
    """Move recurring reminders to this zone; in rooms they keep the program's."""
    snapshot = call.conversation.snapshot

    def zone_of(repeat: Repeat) -> ZoneInfo:
        return zone if repeat.origin.chat_type == "direct" else snapshot.policy.zone

    repeats.retime(unit.tx, zone_of, call.now, snapshot.names_of(call.person))


def _usual(call: Call) -> str:
    """The source of the zone of somebody who chose none: "browser" or "auto" (the program)."""
    snapshot = call.conversation.snapshot
    return "auto" if snapshot.usual_zone(call.person) == snapshot.policy.zone else "browser"


def _told(call: Call, key: str, zone: ZoneInfo) -> str:
    time = f"{moment(call.now, zone):%H:%M}"
    return call.text(f"timezone.{key}", zone=zones.spoken(zone), time=time)
