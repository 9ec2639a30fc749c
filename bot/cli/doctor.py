"""`confidant doctor`: is every channel set up so that it can work, and was everything answered?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from bot.channel import DEFAULT_ACCOUNT, ChannelPlugin, Doctor, Finding
from bot.cli.common import DATABASE_NAME, ConfigOption, harmless, load, reading
from bot.config import Config
from bot.delivery import outbox
from bot.errors import ConfidantError
from bot.gateway import inbox, restored
from bot.gateway.digests import short_folders
from bot.settings import Loaded

MAX_ASIDE = 10  # messages shown each for itself

_SHORT = "an earlier version made it, and two people shared it or nobody known belongs to it"
_MOVE = "Start the bot once; if it is still there, move its notes to whose they are, or away."
_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def doctor(
    channel: Annotated[
        str, typer.Argument(help="Only this channel; the beginning of its name is enough.")
    ] = "",
    config: ConfigOption = None,
) -> None:
    """Check how channels are set up, and that every message was answered and sent.

    Exit status 1 when a channel cannot work like this.
    """
    loaded = load(config, quiet=True)
    if not channel:
        _show_restored(loaded)
    names = [_named(channel, loaded.plugins)] if channel else _set_up(loaded)
    if not names:
        typer.echo("No channel is set up that could be checked.")
    worst = 0
    for name in names:
        findings = _examine(loaded, name)
        typer.echo(name)
        for finding in findings:
            _show(finding)
        worst = max(worst, *(finding.level == "error" for finding in findings), 0)
    for folder in () if channel else short_folders(loaded.config.workspace):
        typer.echo("memory")
        _show(Finding("warning", f"workspace/{folder} is nobody's: {_SHORT}", _MOVE))
    if not channel and (left := _left_over(loaded.config)):
        typer.echo("messages")
        for finding in left:
            _show(finding)
    if worst:
        raise typer.Exit(1)


def _left_over(config: Config) -> list[Finding]:
    """What got no answer, and what could not be sent; nothing before the bot was started once."""
    if not (config.storage.folder / DATABASE_NAME).exists():
        return []
    aside, parked = reading(config, lambda tx: (inbox.aside(tx, 0), outbox.parked_by_channel(tx)))
    findings = [
        Finding(
            "warning",
            f"a message of {_local(each.at)} was set aside ({each.channel}, {each.error})",
            "The log of that time has the reason; the person was told, and may ask again.",
        )
        for each in aside[-MAX_ASIDE:]
    ]
    if len(aside) > MAX_ASIDE:
        findings.insert(0, Finding("warning", f"{len(aside)} messages were set aside, the latest:"))
    for channel, again, count in parked:
        if again:
            words, fix = "could not be sent", "They are tried again every ten minutes for a week."
        else:
            words, fix = "were refused", "Their people were told, where they can be reached."
        findings.append(Finding("warning", f"{channel}: {count} texts {words}", fix))
    return findings or [Finding("ok", "all were answered, and all answers sent")]


def _local(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC).astimezone():%Y-%m-%d %H:%M}"


def _show_restored(loaded: Loaded) -> None:
    """Say what became of a database that was lost once."""
    if not (loaded.config.storage.folder / DATABASE_NAME).exists():
        return
    found = reading(loaded.config, restored.latest)
    if found is not None:
        typer.echo(f"storage\n  {_MARKS['warning']} {_local(found.at)}")
        for line in restored.words(found, "en").splitlines():
            typer.echo(f"    {harmless(line)}")


def _named(wanted: str, plugins: Mapping[str, ChannelPlugin]) -> str:
    """The channel that is meant.

    Raises:
        ConfidantError: none or several could be.
    """
    name = wanted.lower().replace("-", "_")
    found = [name] if name in plugins else [each for each in plugins if each.startswith(name)]
    if len(found) != 1:
        raise ConfidantError(f'There is no channel "{wanted}": there are {", ".join(plugins)}.')
    return found[0]


def _set_up(loaded: Loaded) -> list[str]:
    """The channels that run and can be checked."""
    return [name for name in loaded.plugins if _off(loaded, name) == "" and _able(loaded, name)]


def _off(loaded: Loaded, name: str) -> str:
    """Why a channel does not run, or empty."""
    section = loaded.config.channels.get(name)
    if not section.enabled:
        return "it is switched off (enabled = false)"
    return "" if loaded.plugins[name].ready(section) else "it is not set up"


def _able(loaded: Loaded, name: str) -> Doctor | None:
    channel = loaded.plugins[name].create(loaded.config.channels.get(name))
    return channel if isinstance(channel, Doctor) else None


def _examine(loaded: Loaded, name: str) -> Sequence[Finding]:
    reason = _off(loaded, name)
    if reason:
        return [Finding("error", reason, f"See docs/{name}.md and docs/configuration.md.")]
    channel = _able(loaded, name)
    if channel is None:
        return [Finding("ok", "there is nothing to check")]
    return asyncio.run(_look(channel))


async def _look(channel: Doctor) -> Sequence[Finding]:
    return await channel.examine()


def _show(finding: Finding) -> None:
    account = "" if finding.account == DEFAULT_ACCOUNT else f"{finding.account}: "
    typer.echo(f"  {_MARKS[finding.level]} {account}{finding.text}")
    if finding.fix:
        typer.echo(f"    → {finding.fix}")
