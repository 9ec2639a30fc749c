"""`confidant reminders`: what is due, when and for whom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot.cli.arguments import ConfigOption, JsonOption
from bot.cli.common import load, local_time, reading
from bot.identity.routing import OWNER
from bot.sessions import reminders as once
from bot.sessions import repeats
from bot.sessions.recurrence import described
from bot.sessions.reminders import Reminder
from bot.sessions.repeats import Repeat, Run
from bot.storage import Transaction
from bot.unicode import harmless

Kind = Literal["once", "again", "task"]
State = Literal["waiting", "overdue", "paused"]


@dataclass(frozen=True, slots=True)
class Row:
    """One that waits, with what came of its last time; `text` is empty if it is not the owner's."""

    due_at: int  # ms since the epoch
    kind: Kind
    often: str
    person: str
    place: str
    state: State
    last: str
    why: str
    text: str


def show(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what is due, when and for whom; the words of the owner's alone."""
    now = time.time_ns() // 1_000_000
    rows = reading(load(config, quiet=True).config, lambda tx: _rows(tx, now))
    if as_json:
        typer.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode())
    elif not rows:
        typer.echo("Nothing waits.")
    else:
        Console().print(_table(rows))


def _rows(tx: Transaction, now: int) -> list[Row]:
    """All of them in the order in which they are due; what is paused stands at the end."""
    rows = [_row(each, (), now) for each in once.of_everybody(tx)]
    rows += [_row(each, repeats.runs(tx, each, 1), now) for each in repeats.of_everybody(tx)]
    return sorted(rows, key=lambda row: (row.state == "paused", row.due_at))


def _row(each: Reminder | Repeat, runs: Sequence[Run], now: int) -> Row:
    is_again = isinstance(each, Repeat)
    state: State = "overdue" if each.due_at < now else "waiting"
    if repeats.is_paused(each):
        state = "paused"
    kind: Kind = "once"
    if is_again:
        kind = "task" if each.kind == "task" else "again"
    address = each.target.address
    return Row(
        each.due_at,
        kind,
        described("en", each.series) if is_again else "",
        each.target.person,
        f"{address.channel}:{address.chat}",
        state,
        runs[0].came if runs else "",
        runs[0].error if runs else "",
        each.text if each.target.person == OWNER else "",
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name in ("due", "kind", "for", "in", "state", "last time", "words"):
        table.add_column(name, overflow="fold")
    for row in rows:
        kind = f"{row.kind}, {row.often}" if row.often else row.kind
        last = f"{row.last}: {row.why}" if row.why else row.last
        cells = (local_time(row.due_at), kind, row.person, row.place, row.state, last, row.text)
        table.add_row(*map(harmless, cells))
    return table
