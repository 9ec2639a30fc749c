"""`confidant usage`: what was used, by person, model, day and purpose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot.cli.arguments import ConfigOption, JsonOption
from bot.cli.common import load, reading
from bot.clock import DAY_MS
from bot.context.report import grouped
from bot.i18n import text
from bot.identity.policy import local_zone
from bot.money import KEPT_DAYS, Heading, counts, prices
from bot.money.counts import Line
from bot.money.prices import Prices
from bot.storage import Transaction
from bot.unicode import harmless

ALL: tuple[Heading, ...] = ("person", "model", "day")


def show(
    *,
    config: ConfigOption = None,
    by: Annotated[
        Heading | None, typer.Option("--by", help="One table; person, model and day without it.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=KEPT_DAYS, help="How many days back.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show how many tokens were used, by whom, and what they cost where that is known."""
    loaded = load(config, quiet=True).config
    known, zone = Prices.of_config(loaded), local_zone(loaded)
    since = time.time_ns() // 1_000_000 - days * DAY_MS
    headings = ALL if by is None else (by,)

    def look(tx: Transaction) -> Mapping[Heading, Sequence[Line]]:
        return {each: counts.lines(tx, each, since, zone, known) for each in headings}

    found = reading(loaded, look)
    if as_json:
        plain = {f"by_{name}": [counts.plain(line) for line in found[name]] for name in headings}
        typer.echo(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
        return
    if not found[headings[0]]:
        typer.echo("Nothing was used in this time.")
        return
    console = Console()
    for name in headings:
        console.print(_table(name, found[name]))
    typer.echo(f"Prices: [prices.models], else the list of {prices.LOOKED_UP}, in US dollars.")
    if unpriced := counts.total(found[headings[0]]).bill.unpriced:
        typer.echo(harmless(text("en", "usage.unpriced", models=", ".join(unpriced))))


def _table(by: Heading, lines: Sequence[Line]) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, show_footer=True)
    total = counts.total(lines)
    table.add_column(by, overflow="fold", footer=text("en", "usage.total"))
    for name, number in zip(
        ("runs", "input", "cached", "written", "output"), _numbers(total), strict=True
    ):
        table.add_column(text("en", f"usage.{name}"), justify="right", footer=number)
    cost = counts.cost_in_words("en", total)
    table.add_column(text("en", "usage.cost"), justify="right", footer=cost)
    for line in lines:
        cost = counts.cost_in_words("en", line)
        table.add_row(harmless(line.name), *_numbers(line), cost)
    return table


def _numbers(line: Line) -> list[str]:
    used = line.bill.usage
    return [
        grouped(number)
        for number in (
            line.runs,
            used.input_tokens,
            used.cache_read_tokens,
            used.cache_write_tokens,
            used.output_tokens,
        )
    ]
