"""Repeated reminders and tasks in the database, and the list of all that is to come.

Plain functions over one transaction. A reminder is a text to say or a task to carry out. Each waits
for its next time. When that has come, what came of it is noted and the next time is stored, in the
transaction that sends it: so each comes once, on however many nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from bot.channel import Button
from bot.clock import DAY_MS, moment
from bot.i18n import text
from bot.identity import ORIGIN, MessageOrigin
from bot.sessions import recurrence, reminders
from bot.sessions.due_time import shown
from bot.sessions.recurrence import Series, described
from bot.sessions.reminders import MadeBy, Reminder, ReplyTarget
from bot.storage import Row, Transaction, fulltext, insert_new, marks, scalar, scalars
from bot.storage.records import Records, packed
from bot.unicode import one_line, well_formed

MAX_REPEATS = 30  # of one person
MAX_TASKS = 10  # among them
MAX_FAILURES = 3  # in a row, after which a task is paused
KEPT_RUNS = 10  # of each

Kind = Literal["text", "task"]
Planned = Literal["reminders", "repeats"]  # the tables of what comes once, and again and again
State = Literal["waiting", "paused"]
RunState = Literal["said", "running", "silent", "failed", "stopped"]
Came = Literal["waiting", "sent", "parked", "past", "running", "silent", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """One that waits for its next time, or is paused. Times are ms since the epoch.

    `zone` is the name of the time zone its next time was worked out for, `failures` how many runs
    of a task failed in a row.
    """

    id: int
    target: ReplyTarget
    made_by: MadeBy
    text: str
    series: Series
    zone: str
    due_at: int
    created_at: int
    kind: Kind = "text"
    state: State = "waiting"
    failures: int = 0

    @property
    def origin(self) -> MessageOrigin:
        """The place it was asked for; rights and settings are worked out from it each time."""
        return cast("MessageOrigin", self.target.origin)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one time: when it was due, when it was done, and whether it arrived.

    `missed` is how many more times had gone by until then. What is long "past" nobody knows. Of a
    task it is also how far it is, and why it failed.
    """

    due_at: int
    at: int
    missed: int
    came: Came
    error: str = ""


@dataclass(frozen=True, slots=True)
class PastReminder:
    """One that was said, was cancelled, or came for the last time; `at` in ms since the epoch."""

    text: str
    state: Literal["sent", "cancelled", "over"]
    at: int


REPEATS: Final = Records(
    "repeats",
    Repeat,
    is_numbered=True,
    origin=ORIGIN,
    rule=packed("rule", recurrence.parse, str),
    begins=packed("begins", datetime.fromisoformat, datetime.isoformat),
)
_KEPT = "state IN ('waiting', 'paused')"


def add(
    tx: Transaction,
    target: ReplyTarget,
    text: str,
    series: Series,
    *,
    zone: ZoneInfo,
    now: int,
    made_by: MadeBy = "person",
    kind: Kind = "text",
) -> Repeat | None:
    """Remember to do something again and again; None when this person has so many already.

    What is asked for twice (a turn that was run again after a crash) is kept once.

    Raises:
        ValueError: there is no time to come, or nobody asked for it anywhere.
    """
    text, due_at = well_formed(text), series.after(now, zone)
    if due_at is None or target.origin is None:
        raise ValueError("no time is to come")
    same = REPEATS.first(
        tx,
        "key = ? AND state = 'waiting' AND text = ? AND rule = ? AND due_at = ? AND kind = ?",
        *(target.key, text, str(series.rule), due_at, kind),
    )
    if same is not None:
        return same
    kept = tx.execute(f"SELECT kind FROM repeats WHERE person = ? AND {_KEPT}", (target.person,))
    tasks = sum(row[0] == "task" for row in kept)
    if len(kept) >= MAX_REPEATS or (kind == "task" and tasks >= MAX_TASKS):
        return None
    return REPEATS.add(tx, Repeat(0, target, made_by, text, series, str(zone), due_at, now, kind))


def due(tx: Transaction, now: int, limit: int, kind: Kind = "text") -> list[Repeat]:
    """Those of a kind whose time has come, in order; what cannot be read is set aside."""
    ready = "state = 'waiting' AND due_at <= ? AND kind = ?"
    return REPEATS.take(tx, ready, now, kind, limit, order="due_at, id LIMIT ?")


def next_due(tx: Transaction, kind: Kind = "text") -> int | None:
    """The time the next one of a kind is due, in ms since the epoch; None when none waits."""
    return scalar(tx, "SELECT min(due_at) FROM repeats WHERE state = 'waiting' AND kind = ?", kind)


def move_on(tx: Transaction, repeat: Repeat, zone: ZoneInfo, now: int) -> int | None:
    """Let it wait for the first time after now, or be over; when that is.

    What comes after a time that has come is stored with it, or it comes twice.
    """
    last = scalar(tx, "SELECT max(due_at) FROM repeat_runs WHERE repeat = ?", repeat.id) or 0
    # A clock that was set back a little repeats nothing; one that was far ahead holds nothing up.
    since = last if now < last <= now + DAY_MS else now
    due_at = repeat.series.after(since, zone)
    state = "over" if due_at is None else repeat.state
    tx.execute(
        "UPDATE repeats SET due_at = ?, zone = ?, state = ?, done_at = ? WHERE id = ?",
        (due_at or repeat.due_at, str(zone), state, now if due_at is None else None, repeat.id),
    )
    return due_at


def begin_run(
    tx: Transaction, repeat: Repeat, missed: int, now: int, state: RunState = "said"
) -> bool:
    """Note that its time has come; False when it had come already, on a clock that was set back.

    Only the last few are kept.
    """
    run = {"at": now, "missed": missed, "letter": 0, "state": state}
    is_new = insert_new(tx, "repeat_runs", repeat=repeat.id, due_at=repeat.due_at, **run)
    kept = tx.execute(
        "SELECT due_at FROM repeat_runs WHERE repeat = ? ORDER BY due_at DESC LIMIT ?",
        (repeat.id, KEPT_RUNS),
    )
    tx.execute("DELETE FROM repeat_runs WHERE repeat = ? AND due_at < ?", (repeat.id, kept[-1][0]))
    return is_new


def said(tx: Transaction, repeat: Repeat, letter: int) -> None:
    """Note which text in the outbox says it."""
    tx.execute(
        "UPDATE repeat_runs SET letter = ? WHERE repeat = ? AND due_at = ?",
        (letter, repeat.id, repeat.due_at),
    )


def refused(tx: Transaction, repeat: Repeat) -> None:
    """Nothing is said this time: whoever asked for it may not talk there now."""
    tx.execute(
        "UPDATE repeat_runs SET state = 'stopped' WHERE repeat = ? AND due_at = ?",
        (repeat.id, repeat.due_at),
    )


def end_run(
    tx: Transaction, repeat: Repeat, state: RunState, *, now: int, letter: int = 0, error: str = ""
) -> Repeat | None:
    """Note the result of a task's run; the task as it is then.

    None when that was noted before: the run took so long that it was given up. After
    `MAX_FAILURES` in a row the task is paused.
    """
    ended = tx.execute(
        "UPDATE repeat_runs SET state = ?, at = ?, letter = ?, error = ? "
        "WHERE repeat = ? AND due_at = ? AND state = 'running' RETURNING due_at",
        (state, now, letter, error, repeat.id, repeat.due_at),
    )
    found = get(tx, repeat.id) if ended else None
    if found is None:
        return None
    failures = found.failures + 1 if state == "failed" else 0
    after = "paused" if failures >= MAX_FAILURES and found.state == "waiting" else found.state
    tx.execute(
        f"UPDATE repeats SET failures = ?, state = ? WHERE id = ? AND {_KEPT}",
        (failures, after, repeat.id),
    )
    return replace(found, failures=failures, state=after)


def left_running(tx: Transaction, before: int) -> list[Repeat]:
    """Tasks whose run was begun before a moment and has not ended, due when that run was."""
    rows = tx.execute(
        "SELECT repeat, due_at FROM repeat_runs WHERE state = 'running' AND at < ? ORDER BY at",
        (before,),
    )
    found = ((get(tx, repeat), due_at) for repeat, due_at in rows)
    return [replace(each, due_at=due_at) for each, due_at in found if each is not None]


def get(tx: Transaction, id_: int) -> Repeat | None:
    """One of them, in whatever state."""
    return REPEATS.get(tx, id_)


def pause(tx: Transaction, repeat: Repeat) -> None:
    """Let it wait until it is resumed."""
    tx.execute("UPDATE repeats SET state = 'paused' WHERE id = ?", (repeat.id,))


def change(tx: Transaction, repeat: Repeat, zone: ZoneInfo, now: int) -> int | None:
    """Store its text and its times as they are here; when it comes next.

    One that is paused stays so.
    """
    tx.execute(
        f"UPDATE repeats SET text = ?, rule = ?, begins = ? WHERE id = ? AND {_KEPT}",
        (
            well_formed(repeat.text),
            str(repeat.series.rule),
            repeat.series.begins.isoformat(),
            repeat.id,
        ),
    )
    return move_on(tx, repeat, zone, now)


def resume(tx: Transaction, repeat: Repeat, zone: ZoneInfo, now: int) -> int | None:
    """Let one that is paused go on with its next time; when that is."""
    tx.execute(
        "UPDATE repeats SET failures = 0, state = 'waiting' WHERE id = ? AND state = 'paused'",
        (repeat.id,),
    )
    return move_on(tx, replace(repeat, state="waiting"), zone, now)


def runs(tx: Transaction, repeat: Repeat, limit: int) -> list[Run]:
    """The results of its last times, newest first."""
    rows = tx.execute(  # the numbers of texts that are gone are given again
        "SELECT due_at, at, missed, CASE WHEN repeat_runs.state = 'said' "
        "THEN COALESCE(outbox.state, 'past') ELSE repeat_runs.state END, repeat_runs.error "
        "FROM repeat_runs LEFT JOIN outbox ON outbox.id = letter AND outbox.created_at = at "
        "WHERE repeat = ? ORDER BY due_at DESC LIMIT ?",
        (repeat.id, limit),
    )
    return [Run(*row) for row in rows]


def retime(
    tx: Transaction, zone_of: Callable[[Repeat], ZoneInfo], now: int, people: Collection[str] = ()
) -> None:
    """Recompute when those still to come are due, by the time zones their people have now.

    Of these people only, if any are named. It also takes back what a clock that was far ahead had
    put off, and what it took for said.
    """
    tx.execute("DELETE FROM repeat_runs WHERE at > ? AND state <> 'running'", (now + DAY_MS,))
    whose = f" AND person IN ({marks(people)})" if people else ""
    ahead = f"state = 'waiting' AND due_at > ?{whose}"
    for repeat in REPEATS.take(tx, ahead, now, *people, order="id"):
        with REPEATS.apart(tx, repeat.id):
            zone = zone_of(repeat)
            coming = repeat.series.after(now, zone)
            if str(zone) != repeat.zone or coming is None or coming < repeat.due_at:
                move_on(tx, repeat, zone, now)


def cancel(tx: Transaction, repeat: Repeat, now: int) -> bool:
    """It comes no more; False when it did not any more."""
    gone = tx.execute(
        f"UPDATE repeats SET state = 'cancelled', done_at = ? WHERE id = ? AND {_KEPT} "
        "RETURNING id",
        (now, repeat.id),
    )
    return bool(gone)


def of_key(tx: Transaction, key: str) -> list[Reminder | Repeat]:
    """All that is to be said in a conversation, in order: their numbers are their places, from 1.

    What comes once is among it; what is paused stands at the end.
    """
    coming = REPEATS.where(tx, f"key = ? AND {_KEPT}", key, order="due_at, id")
    return _in_order([*reminders.of_key(tx, key), *coming])


def of_people(tx: Transaction, people: Sequence[str]) -> list[Reminder | Repeat]:
    """All that is to be said to these people, wherever they asked for it, in the same order."""
    whose = f"person IN ({marks(people)}) AND {_KEPT}"
    coming = REPEATS.where(tx, whose, *people, order="due_at, id")
    return _in_order([*reminders.of_people(tx, people), *coming])


def _in_order(found: list[Reminder | Repeat]) -> list[Reminder | Repeat]:
    return sorted(found, key=lambda each: (is_paused(each), each.due_at))


# Tasks of the program's own, which look in on people; see `bot.upkeep.heartbeat`.


def looked_in_on(tx: Transaction) -> list[str]:
    """Everybody who has such a task."""
    return scalars(tx, f"SELECT person FROM repeats WHERE made_by = 'program' AND {_KEPT}")


def looking_in_on(tx: Transaction, person: str) -> Repeat | None:
    """The last task that looked in on somebody, in whatever state, unless the program ended it."""
    theirs = "person = ? AND made_by = 'program' AND state <> 'over'"
    return REPEATS.first(tx, theirs, person, order="id DESC")


def look_in_no_more(tx: Transaction, person: str, now: int) -> None:
    """End the task that looks in on somebody, if there is one."""
    tx.execute(
        "UPDATE repeats SET state = 'over', done_at = ? "
        f"WHERE person = ? AND made_by = 'program' AND {_KEPT}",
        (now, person),
    )


def past(tx: Transaction, people: Sequence[str], limit: int) -> list[PastReminder]:
    """The past reminders of these people, newest first, without forgotten ones."""
    rows: list[Row] = []
    for table in get_args(Planned):
        rows += tx.execute(
            f"SELECT text, state, done_at FROM {table} WHERE person IN ({marks(people)}) "
            "AND state IN ('sent', 'cancelled', 'over') AND text <> '' AND done_at IS NOT NULL "
            "ORDER BY done_at DESC LIMIT ?",
            (*people, limit),
        )
    return sorted((PastReminder(*row) for row in rows), key=lambda each: -each.at)[:limit]


_WHOLE = {"reminders": "about || ' ' || text"}  # what a table's rows say, where it is not `text`


def holding(tx: Transaction, keys: Sequence[str], words: str) -> list[tuple[Planned, int]]:
    """Reminders of some conversations, past ones too, that hold these words; case is ignored."""
    wanted = fulltext.folded(words)
    found: list[tuple[Planned, int]] = []
    for table in get_args(Planned):
        whole = _WHOLE.get(table, "text")
        rows = tx.execute(
            f"SELECT id, {whole} FROM {table} WHERE key IN ({marks(keys)}) AND text <> ''"
            " ORDER BY id",
            keys,
        )
        found += [(table, id_) for id_, said in rows if wanted and wanted in fulltext.folded(said)]
    return found


def forget(tx: Transaction, keys: Sequence[str], words: str, now: int) -> int:
    """Say nothing of it any more that holds these words, and keep none of them; how many."""
    held = holding(tx, keys, words)
    for table, id_ in held:
        clear = "about = '', " if table == "reminders" else ""
        tx.execute(
            f"UPDATE {table} SET text = '', {clear}done_at = coalesce(done_at, ?), "
            "state = CASE WHEN state IN ('waiting', 'paused') THEN 'cancelled' ELSE state END "
            "WHERE id = ?",
            (now, id_),
        )
    return len(held)


def of_everybody(tx: Transaction) -> list[Repeat]:
    """All that wait or are paused, in order."""
    return REPEATS.where(tx, _KEPT, order="due_at, id")


def paused(tx: Transaction) -> list[int]:
    """The numbers of all tasks that failed too often to go on by themselves."""
    given_up = "kind = 'task' AND state = 'paused' AND failures >= ?"
    return scalars(tx, f"SELECT id FROM repeats WHERE {given_up} ORDER BY id", MAX_FAILURES)


def is_paused(each: Reminder | Repeat) -> bool:
    """True for what waits until it is resumed, as a task does that failed too often."""
    return isinstance(each, Repeat) and each.state == "paused"


# --- reminders as people see them: listed, shown, changed by number -------------------------------


MAX_SHOWN = 20  # reminders of one list
MAX_BUTTONS = 5  # reminders of a list that have buttons
MAX_QUOTE = 80  # characters of a reminder in a list

Change = Literal["cancel", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class Agenda:
    """The reminders and tasks of the conversation `key`, told in a language and by its clocks.

    With `people` they are all of theirs instead. `now` is in ms since the epoch. Numbers are places
    in the list, from 1; a button goes by the id, which stays the same.
    """

    tx: Transaction
    key: str
    language: str
    zone: ZoneInfo
    now: int
    people: Sequence[str] = ()

    def waiting(self) -> list[Reminder | Repeat]:
        """All of it, in order."""
        if self.people:
            return of_people(self.tx, self.people)
        return of_key(self.tx, self.key)

    def number_of(self, id_: str) -> int:
        """The number of what has this `id_of`; 0 when it does not wait any more."""
        ids = [id_of(each) for each in self.waiting()]
        return ids.index(id_) + 1 if id_ in ids else 0

    def buttons(self, number: int = 0) -> tuple[Button, ...]:
        """Buttons for what can be done with one, or with the first ones of the list."""
        every = list(enumerate(self.waiting(), start=1))
        some = every[number - 1 : number] if number else every[:MAX_BUTTONS]
        return tuple(
            Button(
                self._text(f"button.{change}_one", number=at), f"/reminders {change} {id_of(each)}"
            )
            for at, each in some
            for change in changes_of(each)
        )

    def list(self, head: str = "", numbers: Collection[int] = ()) -> str:
        """A line for each, or for those with these numbers, and how to see or cancel one.

        At most `MAX_SHOWN` are listed. Recurring ones show the result of their last time.
        """
        every = self.waiting()
        if not every:
            return self._text("reminder.none")
        found = [each for each in enumerate(every, start=1) if not numbers or each[0] in numbers]
        lines = [head or self._text("reminder.list"), ""]
        for number, each in found[:MAX_SHOWN]:
            lines.append(self._item(number, each, one_line(each.text, MAX_QUOTE)))
            if isinstance(each, Repeat):
                lines += [f"   {run}" for run in self.runs(each, 1)]
        if len(found) > MAX_SHOWN:
            lines += ["", self._text("reminder.more", count=len(found) - MAX_SHOWN)]
        return "\n".join((*lines, "", self._text("reminder.how")))

    def show(self, number: int) -> str:
        """One with all of its words and, if it recurs, the results of its last times."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such", number=number)
        lines = [self._item(number, found, found.text)]
        if isinstance(found, Repeat):
            ran = self.runs(found, KEPT_RUNS)
            lines += ["", *(ran or [self._text("repeat.never")])]
        return "\n".join(lines)

    def change(self, change: Change, number: int) -> str:
        """Cancel one, pause it or let it go on; what was done, or why nothing was."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such" if number else "reminder.gone", number=number)
        said = one_line(found.text, MAX_QUOTE)
        if change == "cancel":
            if isinstance(found, Repeat):
                cancel(self.tx, found, self.now)
            else:
                reminders.mark(self.tx, found, "cancelled", self.now)
            return self._text("reminder.cancelled", when=self.when(found), text=said)
        if not isinstance(found, Repeat) or is_paused(found) != (change == "resume"):
            return self._text(f"repeat.cannot_{change}", number=number)
        if change == "pause":
            pause(self.tx, found)
            return self._text("repeat.set_paused", number=len(self.waiting()), text=said)
        due_at = resume(self.tx, found, self.zone_of(found), self.now)
        return self._text("repeat.resumed", when=self._shown(due_at or found.due_at), text=said)

    def zone_of(self, repeat: Repeat) -> ZoneInfo:
        """The zone that one goes by: that of its room, or of whoever asked for it."""
        is_of_room = self.people and repeat.origin.chat_type != "direct"
        return ZoneInfo(repeat.zone) if is_of_room else self.zone

    def _numbered(self, number: int) -> Reminder | Repeat | None:
        waiting = self.waiting()
        return waiting[number - 1] if 1 <= number <= len(waiting) else None

    def _item(self, number: int, each: Reminder | Repeat, words: str) -> str:
        return self._text("reminder.item", number=number, when=self.when(each), text=words)

    def when(self, each: Reminder | Repeat) -> str:
        """Its time and how it repeats, in words."""
        if isinstance(each, Reminder) and each.about:
            return self._text("reminder.about", about=each.about)
        at = self._shown(each.due_at)
        if isinstance(each, Reminder):
            return at
        key = "repeat.paused" if is_paused(each) else "repeat.next"
        words = self._text(key, often=described(self.language, each.series), when=at)
        return self._text("task.marked", when=words) if each.kind == "task" else words

    def runs(self, repeat: Repeat, most: int) -> list[str]:
        """The results of its last times, one line each."""
        return [
            self._text(
                f"repeat.run_{run.came}",
                when=self._shown(run.due_at),
                why=run.error,
                missed=self._text("repeat.run_missed", count=run.missed) if run.missed else "",
            )
            for run in runs(self.tx, repeat, most)
        ]

    def _shown(self, at: int) -> str:
        return shown(self.language, moment(at, self.zone))

    def _text(self, key: str, **values: object) -> str:
        return text(self.language, key, **values)


def id_of(each: Reminder | Repeat) -> str:
    """A stable name for it while it waits: "r12", or "e5" if it repeats."""
    return f"{'e' if isinstance(each, Repeat) else 'r'}{each.id}"


def changes_of(each: Reminder | Repeat) -> tuple[Change, ...]:
    """The changes that can be made to it now."""
    if not isinstance(each, Repeat):
        return ("cancel",)
    return ("resume" if is_paused(each) else "pause", "cancel")
