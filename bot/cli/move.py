"""`confidant move`: everything from a storage folder into a PostgreSQL, and back again."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from bot.channel import reveal
from bot.cli.arguments import ConfigOption, QuietOption
from bot.cli.common import counted, load
from bot.cli.progress import progress
from bot.clock import system_clock
from bot.config import Config
from bot.errors import ConfigError
from bot.portability import places
from bot.portability.move import Advance, Move, Moved, Told
from bot.portability.places import Place

_SCHEMES = ("postgresql://", "postgres://")


def move(
    to: Annotated[
        str,
        typer.Option("--to", help="postgresql://… or a folder; empty, or one this was begun with."),
    ],
    *,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Move conversations and notes into a PostgreSQL, or into a folder, and compare them.

    Where they are now nothing is changed. After a kill or an error the same command goes on.
    """
    loaded = load(config, quiet=True)
    if "://" in to and not is_url(to):
        raise ConfigError("--to takes postgresql://… or a folder.")
    words = for_people if sys.stdout.isatty() else _for_machines
    with progress("Moving", unit="steps", quiet=quiet) as bar:

        def tell(told: Told) -> None:
            bar.say(words(told))

        moved, name = asyncio.run(_move(loaded.config, to, tell, bar.at))
    for line in outcome(moved, name, loaded.config, to):
        typer.echo(line, err=words is _for_machines)


async def _move(
    config: Config, to: str, tell: Callable[[Told], None], advance: Advance
) -> tuple[Moved, str]:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(_source(config))
        target = await stack.enter_async_context(_target(config, to))
        moved = await Move(source, target, system_clock, tell, advance).run()
        return moved, target.name


def _source(config: Config) -> AbstractAsyncContextManager[Place]:
    """Where everything is, by the configuration."""
    url = reveal(config.storage.url)
    if url:
        return places.server(url, config.storage.node_timeout)
    return places.folder(config.storage.folder, config.workspace)


def _target(config: Config, to: str) -> AbstractAsyncContextManager[Place]:
    if is_url(to):
        return places.server(to, config.storage.node_timeout)
    return places.folder(Path(to).expanduser())


def for_people(told: Told) -> str:
    """One line for each table."""
    if told.state == "again":
        return f"{told.what:<14} changed since the last try; it is moved anew"
    return f"{told.what:<14} {told.rows:>9}  moved and equal  {told.digest[:12]}"


def _for_machines(told: Told) -> str:
    return orjson.dumps(asdict(told)).decode()


def outcome(moved: Moved, name: str, config: Config, to: str) -> list[str]:
    """What a move came to, and what to do now, in words; no password is shown."""
    if moved.was_done:
        return [f"Everything was moved to {name} before. Nothing was changed."]
    lines = [f"Everything is in {name} now, and equal. Where it comes from nothing was changed."]
    if moved.others:
        lines.append(f"Left where they are, as they are no notes: {counted(moved.others, 'file')}.")
    return [*lines, *how_to_run(to, config)]


def is_url(to: str) -> bool:
    """True for the URL of a PostgreSQL."""
    return to.startswith(_SCHEMES)


def how_to_run(to: str, config: Config) -> list[str]:
    """What to write where, so that the program runs on another place; no password is shown."""
    if is_url(to):
        return [
            "To run on it, put this into .env, with the password if it has one:",
            f"  CONFIDANT_STORAGE__URL={_without_password(to)}",
        ]
    folder = Path(to).expanduser().resolve()
    lines = ["To run on it, put this into confidant.toml, and remove [storage] url:"]
    lines.append(f'  [storage]\n  dir = "{folder}"')
    if config.memory.workspace is not None:
        lines.append(f'  [memory]\n  workspace = "{folder / places.WORKSPACE}"')
    return lines


def _without_password(url: str) -> str:
    """A URL as it may stand on a terminal."""
    return re.sub(r"(://[^:/@]*:)[^@]*@|(password=)[^&]*", _hidden, url)


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1]}…@" if found[1] else f"{found[2]}…"
