"""The scheduled jobs of OpenClaw (`cron/jobs.json`), as reminders and tasks of the owner here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson

from bot.channel import DEFAULT_ACCOUNT
from bot.identity import Conversation, MessageOrigin, PolicySnapshot, resolve
from bot.importing.openclaw.people import MAX_FILE, channel_of
from bot.importing.storing import brought, note
from bot.importing.values import Skipped, items, mapping, milliseconds, moment, words
from bot.sessions import recurrence, reminders, repeats
from bot.sessions.recurrence import WEEKDAYS, Rule, Series
from bot.sessions.reminders import MAX_TEXT, ReplyTarget
from bot.sessions.repeats import Kind
from bot.storage import Transaction

_KEY = "import.openclaw.jobs"  # in `meta`: the ids of those that were brought
_PAYLOADS: Final[Mapping[str, tuple[str, Kind]]] = {
    "systemEvent": ("text", "text"),
    "agentTurn": ("message", "task"),
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))  # of the fields of a cron expression


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is due at a time (in ms since the epoch), or repeatedly."""

    id: str
    text: str
    kind: Kind
    when: int | Series
    where: Conversation


def planned(folder: Path, snapshot: PolicySnapshot, now: int) -> Iterator[Job | Skipped]:
    """Every job that is the owner's and comes again, or is still to come; and why others do not."""
    path = folder / "cron" / "jobs.json"
    try:
        with path.open("rb") as file:
            found: object = orjson.loads(file.read(MAX_FILE))
    except FileNotFoundError:
        return
    except (OSError, orjson.JSONDecodeError):
        yield Skipped("cron/jobs.json", "it cannot be read")
        return
    for job in map(mapping, items(mapping(found).get("jobs"))):
        try:
            yield _job(job, snapshot, now)
        except ValueError as exc:
            name = words(job.get("name")) or words(job.get("id"))
            yield Skipped(f"the job {name or 'without a name'}", str(exc))


def new(tx: Transaction, found: Sequence[Job]) -> list[Job]:
    """Those that were not brought before."""
    known = brought(tx, _KEY)
    return [job for job in found if job.id not in known]


def store(tx: Transaction, found: Sequence[Job], now: int) -> None:
    """Store jobs, and note that it was done; what no room is left for stays away."""
    for job in found:
        here = job.where
        target = ReplyTarget(here.key, here.person, here.address, here.language, here.origin)
        if isinstance(job.when, int):
            reminders.add(tx, target, job.text, job.when, now, made_by="agent")
        else:
            repeats.add(
                tx,
                target,
                job.text,
                job.when,
                zone=here.zone,
                now=now,
                made_by="agent",
                kind=job.kind,
            )
    note(tx, _KEY, [job.id for job in found], now)


def _job(job: Mapping[str, object], snapshot: PolicySnapshot, now: int) -> Job:
    """A job as it is kept here.

    Raises:
        ValueError: it cannot be; its words say why.
    """
    payload, schedule = mapping(job.get("payload")), mapping(job.get("schedule"))
    if job.get("enabled") is False:
        raise ValueError("it is switched off there")
    field, kind = _PAYLOADS.get(words(payload.get("kind")), ("", "text"))
    text = words(payload.get(field)).strip()
    if not text or len(text) > MAX_TEXT:
        raise ValueError(f"it says nothing, or more than {MAX_TEXT} characters")
    where = _where(job, snapshot)
    zone = words(schedule.get("tz"))
    if zone and zone != str(where.zone):
        raise ValueError(f"its times are those of {zone}, and yours those of {where.zone}")
    when = _when(
        schedule, mapping(job.get("state")), datetime.fromtimestamp(now / 1000, where.zone)
    )
    if isinstance(when, int) and (kind == "task" or when <= now):
        raise ValueError("it comes once, and is a task or past")
    if isinstance(when, Series) and when.after(now, where.zone) is None:
        raise ValueError("no time of it is to come")
    return Job(words(job.get("id")) or text, text, kind, when, where)


def _where(job: Mapping[str, object], snapshot: PolicySnapshot) -> Conversation:
    """The owner's direct chat that it goes to: in Telegram, whose chats are known by the person."""
    delivery = mapping(job.get("delivery"))
    channel, to = words(delivery.get("channel")), words(delivery.get("to"))
    if not to:
        owners = snapshot.policy.config.session.owner
        channel, _, to = next((o for o in owners if o.startswith("telegram:")), "").partition(":")
    chat = to.removeprefix("telegram:").removeprefix("tg:")
    origin = MessageOrigin("telegram", DEFAULT_ACCOUNT, chat, "direct", chat)
    where = resolve(snapshot, origin)
    if channel_of(channel) != "telegram" or not where.is_owner or not where.is_served:
        raise ValueError("it goes to no chat of yours that is known here: set it with /remind")
    return where


def _when(
    schedule: Mapping[str, object], state: Mapping[str, object], now: datetime
) -> int | Series:
    match schedule.get("kind"):
        case "at":
            return moment(schedule.get("at")) or milliseconds(schedule.get("atMs"))
        case "every":
            every = schedule.get("everyMs")
            minutes, rest = divmod(every if isinstance(every, int) else 0, 60_000)
            if rest:
                raise ValueError("it does not come every so many minutes")
            is_hours = minutes % 60 == 0 and minutes > 0
            rule = Rule("HOURLY", minutes // 60) if is_hours else Rule("MINUTELY", minutes)
            begins = milliseconds(state.get("nextRunAtMs")) or int(now.timestamp() * 1000)
            first = datetime.fromtimestamp(begins / 1000, UTC).replace(tzinfo=None)
            return Series(recurrence.checked(rule), first)
        case "cron":
            rule = recurrence.checked(rule_of(words(schedule.get("expr"))))
            return Series(rule, now.replace(tzinfo=None, second=0, microsecond=0))
        case _:
            raise ValueError("when it comes is not known here")


def rule_of(expression: str) -> Rule:
    """The rule of a cron expression of five fields.

    Raises:
        ValueError: it is none that can be kept.
    """
    fields = expression.upper().split()
    if len(fields) != len(_BOUNDS) or len(expression) > 200:
        raise ValueError("its cron expression is not known here")
    minutes, hours, days, months, weekdays = (
        _values(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)
    )
    if days and weekdays:
        raise ValueError("it comes on days of the month and on days of the week")
    return Rule(
        "MONTHLY" if days else "WEEKLY" if weekdays else "DAILY",
        months=months,
        days=days,
        weekdays=tuple((0, day) for day in sorted({(day - 1) % 7 for day in weekdays})),
        hours=hours or tuple(range(24)),
        minutes=minutes or tuple(range(60)),
    )


def _values(field: str, low: int, high: int) -> tuple[int, ...]:
    """The values a field allows; empty means all."""
    if field in {"*", "?"}:
        return ()
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else _number(first, high)
        end = high if first == "*" or (step and not last) else _number(last or first, high)
        if not low <= start <= end <= high:
            raise ValueError("its cron expression is not known here")
        found.update(range(start, end + 1, max(1, int(step)) if step.isdecimal() else 1))
    return tuple(sorted(found))


def _number(text: str, high: int) -> int:
    if high == 7 and text[:2] in WEEKDAYS:
        return WEEKDAYS.index(text[:2]) + 1
    if not text.isascii() or not text.isdecimal() or len(text) > 2:
        raise ValueError("its cron expression is not known here")
    return int(text)
