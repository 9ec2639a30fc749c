"""`confidant sessions`, `why`, `reminders` and `usage`: what the database holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot import money
from bot.cli.common import counted, load, local_time, reading
from bot.cli.main import ConfigOption, JsonOption
from bot.clock import system_clock
from bot.context.budget import grouped
from bot.errors import ConfidantError
from bot.i18n import text
from bot.identity.conversation import local_zone
from bot.identity.routing import OWNER
from bot.invocation import confidant
from bot.money import COLUMNS, KEPT_DAYS, Heading, Prices, UsageLine
from bot.sessions import browsing, entries, repeats, store
from bot.sessions import reminders as once
from bot.sessions.entries import Entry
from bot.sessions.recurrence import described
from bot.sessions.reminders import NEVER, Reminder
from bot.sessions.repeats import Repeat, Run
from bot.sessions.store import Session
from bot.storage import Transaction, files, scalar
from bot.unicode import harmless
from bot.views import outcomes
from bot.views.usage import UsageDays

INDEX_NAME = "sessions.json"


def show_all(config: ConfigOption = None) -> None:
    """Show every conversation, newest first; * marks the current ones."""
    loaded = load(config, quiet=True)
    found, pointers = reading(
        loaded.config, lambda tx: (store.all_sessions(tx), store.pointers(tx))
    )
    if not found:
        typer.echo("There is no conversation yet.")
    for session in found:
        mark = "*" if pointers.get(session.key) == session.id else " "
        typer.echo(
            f"{mark} {session.id}  {local_time(session.last_user_at)}  "
            f"{session.entry_count:>5} {'entry  ' if session.entry_count == 1 else 'entries'}  "
            f"{session.key}"
        )


def show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="As `sessions list` shows it.")],
    config: ConfigOption = None,
) -> None:
    """Show what was said in a conversation."""
    loaded = load(config, quiet=True)

    def work(tx: store.Transaction) -> tuple[Session, int, list[Entry], frozenset[str]] | None:
        session = store.get(tx, session_id)
        if session is None:
            return None
        there = scalar(tx, "SELECT count(*) FROM entries WHERE session_id = ?", session_id)
        return session, session.entry_count - there, *browsing.whole(tx, session)

    found = reading(loaded.config, work)
    if found is None:
        raise ConfidantError(
            f"There is no session {session_id}: see `{confidant('sessions list')}`."
        )
    session, dropped, said, gone = found
    if dropped:
        typer.echo(
            f"({counted(dropped, 'earlier entry', 'earlier entries')} deleted by month; see "
            "[storage] keep_months)"
        )
    for entry in said:
        words = "(forgotten)" if entry.id in gone else harmless(entry.text)
        if words:
            program = entries.imported_name(session.channel) or "bot"
            who = "you" if entry.role == "user" else program
            typer.echo(f"{local_time(entry.at)}  {who}: {words}")


def why(
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="Such as telegram:42, or 42.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the outcome of the last messages from a chat, and of those sent to it."""
    channel, _, number = chat.rpartition(":")
    loaded = load(config, quiet=True)
    found = reading(loaded.config, lambda tx: outcomes.of_chat(tx, channel, number))
    if as_json:
        typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        return
    if not found:
        raise ConfidantError(f"No message came from {harmless(chat)}, and none was sent there.")
    for each in found:
        after = f" after {(each.done_at - each.at) / 1000:.1f} s" if each.done_at else ""
        tried = (
            f", {each.tries} failed {'try' if each.tries == 1 else 'tries'}" if each.tries else ""
        )
        reason = f": {harmless(each.why)}" if each.why else ""
        link = "behind" if each.outcome == "waiting" else "together with"
        other = f" {link} {each.what} {each.other}" if each.other else ""
        typer.echo(
            f"{local_time(each.at)}  {each.what} {each.number}  "
            f"{_OUTCOMES[each.outcome]}{other}{after}{tried}{reason}"
        )


_OUTCOMES: Mapping[outcomes.Outcome, str] = {
    "answered": "answered",
    "failed": "its reply failed",
    "stopped": "stopped",
    "refused": "not answered",
    "waiting": "waiting for its answer",
    "aside": "set aside",
    "sent": "sent",
    "unsent": "waiting to be sent",
    "later": "not sent, will be retried",
    "unreached": "not sent, kept until somebody writes there",
    "given_up": "not sent",
}


def export(
    folder: Annotated[Path, typer.Argument(help="The folder to write to; created if missing.")],
    config: ConfigOption = None,
) -> None:
    """Write every transcript, and an index in sessions.json, into a folder."""
    loaded = load(config, quiet=True)

    def work(tx: store.Transaction) -> int:
        found = store.all_sessions(tx)
        for session in found:
            lines = (f"{line}\n" for line in _lines(tx, session))
            _write(folder / f"{session.id}.jsonl", "".join(lines).encode())
        index = _index(found, store.pointers(tx))
        _write(folder / INDEX_NAME, orjson.dumps(index, option=orjson.OPT_INDENT_2))
        return len(found)

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        count = reading(loaded.config, work)
    except OSError as exc:
        raise ConfidantError(f"{folder} cannot be written: {exc.strerror}.") from exc
    typer.echo(f"{counted(count, 'conversation')} written to {folder}.")


def _lines(tx: store.Transaction, session: Session) -> Iterator[str]:
    seq, lines = 0, [store.header_of(session)]
    while lines:
        yield from lines
        lines, seq = browsing.everything(tx, session, seq)


def _index(found: list[Session], pointers: dict[str, str]) -> dict[str, Any]:
    """The current session of every key, in the shape other tools know."""
    by_id = {session.id: session for session in found}
    return {
        key: {
            "sessionId": id_,
            "updatedAt": by_id[id_].last_user_at,
            "chatType": by_id[id_].chat_type,
            "channel": by_id[id_].channel,
            "inputTokens": by_id[id_].input_tokens,
            "outputTokens": by_id[id_].output_tokens,
            "model": by_id[id_].model,
        }
        for key, id_ in pointers.items()
    }


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=files.opener) as stream:
        stream.write(data)


# `confidant reminders`: what is due, when, and for whom.

Kind = Literal["once", "again", "task"]
State = Literal["waiting", "overdue", "paused"]


@dataclass(frozen=True, slots=True)
class ReminderRow:
    """A reminder or task and its last run; `text` is empty unless it is the owner's."""

    due_at: int  # ms since the epoch
    kind: Kind
    often: str
    person: str
    place: str
    state: State
    last: str
    why: str
    text: str


def show_reminders(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what is due, when and for whom; the text only of your own."""
    now = system_clock()
    rows = reading(load(config, quiet=True).config, lambda tx: _rows(tx, now))
    if as_json:
        typer.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode())
    elif not rows:
        typer.echo("There are no reminders.")
    else:
        Console().print(_table(rows))


def _rows(tx: Transaction, now: int) -> list[ReminderRow]:
    """All of them by due time; paused ones last."""
    rows = [_row(each, (), now) for each in once.of_everybody(tx)]
    rows += [_row(each, repeats.runs(tx, each, 1), now) for each in repeats.of_everybody(tx)]
    return sorted(rows, key=lambda row: (row.state == "paused", row.due_at))


def _row(each: Reminder | Repeat, runs: Sequence[Run], now: int) -> ReminderRow:
    is_again = isinstance(each, Repeat)
    state: State = "overdue" if each.due_at < now else "waiting"
    if repeats.is_paused(each):
        state = "paused"
    kind: Kind = "once"
    if is_again:
        kind = "task" if each.kind == "task" else "again"
    address = each.target.address
    return ReminderRow(
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


def _table(rows: Sequence[ReminderRow]) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name in ("due", "kind", "for", "in", "state", "last time", "words"):
        table.add_column(name, overflow="fold")
    for row in rows:
        kind = f"{row.kind}, {row.often}" if row.often else row.kind
        last = f"{row.last}: {row.why}" if row.why else row.last
        when = local_time(row.due_at) if row.due_at < NEVER else "by its topic"
        cells = (when, kind, row.person, row.place, row.state, last, row.text)
        table.add_row(*map(harmless, cells))
    return table


# `confidant usage`: what was used, by person, model, day and purpose.

ALL: tuple[Heading, ...] = ("person", "model", "day")


def show_usage(
    *,
    config: ConfigOption = None,
    by: Annotated[Heading | None, typer.Option("--by", help="Show only this table.")] = None,
    days: Annotated[
        int, typer.Option(min=1, max=KEPT_DAYS, help="How many days, today included.")
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show how many tokens were used, by whom, and what they cost if known."""
    loaded = load(config, quiet=True).config
    asked, zone, now = UsageDays(Prices.of_config(loaded)), local_zone(loaded), system_clock()
    headings = ALL if by is None else (by,)
    found = reading(loaded, lambda tx: asked.look(tx, zone, now, days)).lines
    if as_json:
        plain = {f"by_{name}": [money.plain(line) for line in found[name]] for name in headings}
        typer.echo(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
        return
    if not found[headings[0]]:
        typer.echo("Nothing was used in this period.")
        return
    console = Console()
    for name in headings:
        console.print(_usage_table(name, found[name]))
    typer.echo(
        f"Prices: [prices.models], else the list of {money.PRICES_LOOKED_UP}, in US dollars."
    )
    if unpriced := money.total(found[headings[0]]).bill.unpriced:
        typer.echo(harmless(text("en", "usage.unpriced", models=", ".join(unpriced))))


def _usage_table(by: Heading, lines: Sequence[UsageLine]) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, show_footer=True)
    total = money.total(lines)
    table.add_column(by, overflow="fold", footer=text("en", "usage.total"))
    for name, number in zip(COLUMNS, _cells(total), strict=True):
        table.add_column(text("en", f"usage.{name}"), justify="right", footer=number)
    for line in lines:
        table.add_row(harmless(line.name), *_cells(line))
    return table


def _cells(line: UsageLine) -> tuple[str, ...]:
    return (*map(grouped, line.numbers), money.cost_in_words("en", line))
