"""`confidant doctor`: can everything work as it is set up, and was everything answered?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from bot import recovery
from bot.channel import DEFAULT_ACCOUNT, ChannelPlugin, Doctor, Finding, reveal
from bot.cli.common import load, local_time, reading
from bot.cli.doctor_models import model_findings
from bot.cli.doctor_speech import speech_findings
from bot.cli.doctor_tools import tool_findings
from bot.cli.doctor_web import web_findings
from bot.cluster.extra import NO_EXTRA
from bot.config import Config
from bot.context import tokens
from bot.delivery import outbox
from bot.errors import ConfidantError, StorageError, StorageNotMade
from bot.id_migration import short_folders
from bot.memory import embed
from bot.memory.index.row_reader import EXTENSION
from bot.memory.index.shared_rows import MEND
from bot.sessions import inbox
from bot.settings import Loaded
from bot.storage import months
from bot.storage.files import DATABASE_NAME
from bot.storage.months import Month
from bot.unicode import harmless

MAX_ASIDE = 10  # messages shown each for itself

_SHORT = "an earlier version made it, and two people shared it or nobody known belongs to it"
_MOVE = "Start the bot once; if it is still there, move its notes to whose they are, or away."
_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def check(channel: str, config: Path | None) -> None:
    """Check everything, or only a channel; exit status 1 when something cannot work like this."""
    loaded = load(config, quiet=True)
    if not channel:
        _show_restored(loaded)
    names = [_named(channel, loaded.plugins)] if channel else _set_up(loaded)
    if not names:
        typer.echo("No channel that could be checked is set up.")
    found = {name: _examine(loaded, name) for name in names}
    if not channel:
        found |= {"database": _database(loaded.config)}
        found |= {"model": model_findings(loaded.config), "memory": _memory(loaded.config)}
        found |= {"tools": tool_findings(loaded.config)}
        found |= {"speech": speech_findings(loaded.config)}
        found |= {"tokens": _tokens(loaded.config), "messages": _left_over(loaded.config)}
        found |= {"web tools": web_findings(loaded.config)}
    for name, findings in found.items():
        if findings:
            typer.echo(name)
        for finding in findings:
            _show(finding)
    if any(finding.level == "error" for findings in found.values() for finding in findings):
        raise typer.Exit(1)


def _database(config: Config) -> Sequence[Finding]:
    """The server of the database: whether it can be used; nothing for a folder."""
    if config.storage.url is None:
        return []
    try:
        from bot.storage.postgres_server import examine  # noqa: PLC0415 - its packages are an extra
    except ImportError:
        return [Finding("error", NO_EXTRA)]
    storage = config.storage
    try:
        server = examine(reveal(storage.url), storage.cluster, reveal(storage.direct_url))
    except StorageError as error:
        return [Finding("error", str(error))]
    megabytes = round(server.size / 1_000_000)
    tables = f"tables of version {server.tables}" if server.tables else "no tables yet"
    return [
        Finding("ok", f"PostgreSQL {server.version} at {server.place}: {megabytes} MB, {tables}"),
        *(Finding("error", problem) for problem in server.problems),
        *([] if server.problems else [Finding("ok", "the role may do what is needed")]),
        *([] if server.problems else _months(config)),
    ]


def _months(config: Config) -> Sequence[Finding]:
    """Which months of what was said there are, and which will be dropped.

    Or that the tables are to be made or migrated, which nothing here does.
    """
    kept = config.storage.keep_months
    try:
        every, due = reading(config, lambda tx: (months.listed(tx), months.due(tx, kept)))
    except StorageNotMade as error:
        return [Finding("warning", str(error))]
    except StorageError as error:
        return [Finding("error", str(error))]
    gone = [each.name for each in every if each.is_dropped]
    stay = [each for each in every if not each.is_dropped and each.name not in due]
    rule = f"for {kept} months beside this one" if kept else "for ever"
    so_far = f"; dropped so far: {_span(gone)}" if gone else ""
    findings = [Finding("ok", f"what was said is kept {rule}: {_amount(stay)}{so_far}")]
    if going := [each for each in every if each.name in due]:
        fix = "Who still needs them makes a backup now, or sets [storage] keep_months higher."
        findings.append(Finding("warning", f"the nodes drop for good: {_amount(going)}", fix))
    return findings


def _amount(found: Sequence[Month]) -> str:
    """Some months in words."""
    count, size = sum(each.entries for each in found), sum(each.size for each in found)
    span = _span([each.name for each in found])
    return f"{span}, {count} {'entry' if count == 1 else 'entries'}, {size / 1_000_000:.1f} MB"


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _memory(config: Config) -> Sequence[Finding]:
    """How memory is searched, and which folders of it are nobody's."""
    embedder = config.memory.embedder
    if why := embed.missing(embedder):
        how = Finding("warning", f"it is searched by words alone: {why}")
    elif embedder.provider == "none" or not config.memory.vector_weight:
        how = Finding("ok", "it is searched by words alone, as [memory] says")
    else:
        how = Finding("ok", f"it is searched by words and by meaning ({embedder.provider})")
    if config.storage.url is not None:
        return [how, *_pgvector(config)]
    astray = short_folders(config.workspace)
    return [
        how,
        *(Finding("warning", f"workspace/{each} is nobody's: {_SHORT}", _MOVE) for each in astray),
    ]


def _pgvector(config: Config) -> Sequence[Finding]:
    """Whether the database compares vectors in the quick way."""
    try:
        found = reading(config, lambda tx: tx.execute(EXTENSION))
    except StorageNotMade:  # said of the database
        return []
    except ConfidantError as error:
        return [Finding("error", f"the notes cannot be read: {error}")]
    if found:
        return [Finding("ok", f"the notes are rows of the database; pgvector is {found[0][0]}")]
    fix = f"Say `{MEND}` there, as who owns the database."
    return [Finding("warning", "the database has no pgvector: vectors are compared slowly", fix)]


def _tokens(config: Config) -> Sequence[Finding]:
    """What counts tokens."""
    choice = config.context.tokenizer
    name = tokens.counter(choice).name
    if name != tokens.ESTIMATE:
        return [Finding("ok", f"tiktoken counts them ({name})")]
    if choice != "tiktoken":
        return [Finding("ok", "they are estimated, and corrected by what the service reports")]
    fix = "Set TIKTOKEN_CACHE_DIR to a folder that has those of o200k_base or cl100k_base."
    return [Finding("error", "they are estimated: tiktoken's ranks are not here", fix)]


def _left_over(config: Config) -> list[Finding]:
    """What got no answer, and what could not be sent; nothing before the bot was started once."""
    if config.storage.url is None and not (config.storage.folder / DATABASE_NAME).exists():
        return []
    try:
        aside, parked = reading(
            config, lambda tx: (inbox.aside(tx, 0), outbox.parked_by_channel(tx))
        )
    except StorageNotMade:  # said of the database
        return []
    except StorageError as error:
        return [Finding("error", f"they cannot be looked at: {error}")]
    findings = [
        Finding(
            "warning",
            f"a message of {local_time(each.at)} was set aside ({each.channel}, {each.error})",
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


def _show_restored(loaded: Loaded) -> None:
    """Say what became of a database that was lost once."""
    storage = loaded.config.storage
    if storage.url is not None or not (storage.folder / DATABASE_NAME).exists():
        return
    found = reading(loaded.config, recovery.latest)
    if found is not None:
        typer.echo(f"storage\n  {_MARKS['warning']} {local_time(found.at)}")
        for line in recovery.words(found, "en").splitlines():
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
