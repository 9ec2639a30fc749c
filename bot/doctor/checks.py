"""The list of checks, in the order in which they are shown, and of repairs."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Final

from bot import housekeeping
from bot.channel import Finding, Repair, reveal
from bot.clock import moment, to_the_minute
from bot.commands.commander import menus
from bot.config import Config, Settings
from bot.delivery import outbox
from bot.doctor import Setup, services, storage
from bot.errors import ConfidantError, EmbedderError
from bot.identity.view import MAIN_SPACE
from bot.memory import embed, folders, selftest
from bot.memory.index import file_rows, queries
from bot.memory.memory import INDEX_FOLDER, Memory, store_of
from bot.portability import places, restore
from bot.portability.move import Move
from bot.sessions import inbox, repeats, rooms
from bot.settings.checks import nearest, rules_of
from bot.storage import Transaction, files

MAX_ASIDE: Final = 10  # messages shown each for itself


async def check_left_over(setup: Setup) -> Sequence[Finding]:
    """Check for messages without an answer, unsent ones, and paused tasks."""
    return await setup.read(_look) or []


def _look(tx: Transaction) -> Sequence[Finding]:
    aside = inbox.aside(tx, 0)
    found = [
        Finding.of(
            "warning",
            "messages.aside",
            at=to_the_minute(each.at, None),
            channel=each.channel,
            error=each.error,
        )
        for each in aside[-MAX_ASIDE:]
    ]
    if len(aside) > MAX_ASIDE:
        found.insert(0, Finding.of("warning", "messages.many_aside", count=len(aside)))
    found += [
        Finding.of(
            "warning", f"messages.{'unsent' if again else 'refused'}", channel=channel, count=count
        )
        for channel, again, count in outbox.parked_by_channel(tx)
    ]
    if paused := len(repeats.paused(tx)):
        found.append(Finding.of("warning", "messages.paused", count=paused))
    return found or [Finding.of("ok", "messages.all_answered")]


async def check_rules(setup: Setup) -> Sequence[Finding]:
    """Check for chats that rules name and nobody has written in: an id may be misspelt.

    Only the platform knows which ids exist, so this cannot be an error in the configuration.
    """
    named = {
        (rule.channel.lower(), rule.chat.lower()) for _, rule in rules_of(setup.config) if rule.chat
    }
    known = await setup.read(rooms.chats) if named else None
    if known is None:
        return []
    installed = type(setup.config.channels).model_fields
    known |= {(n, id_) for n in installed for id_ in setup.config.channels.get(n).groups}
    ids = {(at, id_.lower()) for channel, id_ in known for at in (channel, "")}
    names = sorted({id_ for _, id_ in ids})
    return [
        Finding.of("warning", "rules.silent_chat", chat=chat, meant=nearest(chat, names) or "–")
        for _, chat in sorted(named - ids)
    ] or [Finding.of("ok", "rules.known")]


FOUND_WELL = 70  # of a hundred notes that were asked for in other words


async def check_memory(setup: Setup) -> Sequence[Finding]:
    """Check how memory is searched, and that its index is intact and up to date."""
    found = [await _embedder(setup.config)]
    if not setup.is_usable:
        return found
    found += await _asked(setup)
    names = setup.config.memory.folders
    looks = [await asyncio.to_thread(folders.look, setup.config, name, {}) for name in names]
    found += [_folder(look.state) for look in looks]
    if setup.is_shared:
        return found
    if setup.config.workspace.is_dir():
        found += await asyncio.to_thread(_index, setup)
    return found


def _folder(state: folders.Folder) -> Finding:
    """The state of a folder of documents on disk."""
    if state.fault:
        return Finding.of("warning", "memory.folder_fault", name=state.name, why=state.fault)
    when = f"{moment(state.changed_at, UTC):%Y-%m-%d}" if state.changed_at else "–"
    return Finding.of("ok", "memory.folder", name=state.name, count=state.files, when=when)


async def _embedder(config: Config) -> Finding:
    """Check the embedder; a server is asked."""
    embedder = config.memory.embedder
    if why := embed.missing(embedder):
        return Finding.of("warning", "memory.words_alone", why=why)
    if embedder.plugin:
        return Finding.of("ok", "memory.vectors", provider=embedder.plugin)
    if embedder.provider == "none" or not config.memory.vector_weight:
        return Finding.of("ok", "memory.words")
    if embedder.provider == "openai":
        asked = embed.make(embedder, config.storage.folder / INDEX_FOLDER)
        try:
            async with asyncio.timeout(embedder.timeout):
                await asked.embed(["hello"])
        except (EmbedderError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            return Finding.of("warning", "memory.no_embedder", url=embedder.base_url, why=why)
        finally:
            await asked.close()
    return Finding.of("ok", "memory.vectors", provider=embedder.provider)


async def _asked(setup: Setup) -> Sequence[Finding]:
    """Results of the nightly self-test: the owner's, and the share of everybody else's."""
    try:
        mine = await setup.read(lambda tx: selftest.of_space(tx, MAIN_SPACE))
        others = await setup.read(selftest.of_others)
    except ConfidantError:  # a finding of the storage
        return []
    found: list[Finding] = []
    for name, asked in (("asked", mine), ("asked_others", others)):
        if asked is not None:
            level = "ok" if asked.share >= FOUND_WELL else "warning"
            key = name if level == "ok" else f"{name}_poorly"
            share, never = asked.share, len(asked.never)
            found.append(
                Finding.of(level, f"memory.{key}", share=share, asked=asked.asked, never=never)
            )
    return found


def _index(setup: Setup) -> list[Finding]:
    """Check whether the index file can be read, and how far it is behind the notes."""
    notes = store_of(setup.config, setup.clock, None)
    try:
        found = file_rows.file_health(setup.config.storage.folder / INDEX_FOLDER, notes)
    except OSError as error:
        return [Finding.of("error", "memory.unreadable", why=error.strerror or "")]
    if found.state == "damaged":
        return [Finding.of("error", "memory.index_damaged", repair="index")]
    if found.state != "ready":
        return [Finding.of("ok", f"memory.index_{found.state}")]
    if found.behind:
        return [Finding.of("warning", "memory.index_behind", count=found.behind)]
    return [Finding.of("ok", "memory.index_ready")]


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its name."""

    name: str
    look: Callable[[Setup], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of a check or a channel."""

    check: str
    findings: Sequence[Finding]


CHECKS: Final = (
    Check("storage", storage.check),
    Check("backups", storage.check_backups),
    Check("limits", storage.check_limits),
    Check("page", services.check_page),
    Check("model", services.check_models),
    Check("clock", services.check_clock),  # by the clocks of the servers that were just asked
    Check("memory", check_memory),
    Check("tools", services.check_tools),
    Check("speech", services.check_speech),
    Check("tokens", services.check_tokens),
    Check("messages", check_left_over),
    Check("rules", check_rules),
    Check("running", services.reported),
    Check("web_tools", services.check_web),
)


async def examine(setup: Setup, channel: str = "") -> AsyncIterator[CheckResult]:
    """Run every check, or only that of a channel; yields their findings.

    Raises:
        ConfidantError: there is no such channel.
    """
    if channel:
        name = services.named(channel, setup.plugins)
        yield CheckResult(name, await services.examine_channel(setup, name))
        return
    for check in CHECKS:
        findings = await _looked(check, setup)
        if any(each.id in storage.BLOCKING for each in findings):
            setup = replace(setup, is_usable=False)
        yield CheckResult(check.name, findings)
    has_any = False
    for name, plugin in setup.plugins.items():
        if plugin.off(setup.config.channels.get(name)):
            continue
        if (findings := await services.examine_channel(setup, name)) is not services.NOTHING:
            has_any = True
            yield CheckResult(name, findings)
    if not has_any:
        yield CheckResult("channels", [Finding.of("ok", "channel.none")])


async def _looked(check: Check, setup: Setup) -> Sequence[Finding]:
    try:
        return await check.look(setup)
    except ConfidantError as error:
        return [Finding.of("error", "doctor.failed", why=str(error))]


# Everything that `confidant doctor --fix` does. Repairs lose nothing and can be repeated.


async def repair(setup: Setup, what: Repair, check: str) -> None:
    """Run a repair that a finding of a check names.

    Raises:
        ConfidantError: it failed; the message says why.
    """
    try:
        await REPAIRS[what](setup, check)
    except OSError as error:
        raise ConfidantError(f"It could not be repaired: {error.strerror or error}.") from error


async def _modes(setup: Setup, _check: str) -> None:
    """Remove other users' access to private files."""
    await asyncio.to_thread(files.mend, storage.private_files(setup))
    for folder in housekeeping.writable(setup.config):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~stat.S_IWOTH)


async def _lock(setup: Setup, _check: str) -> None:
    """Clear the lock that a dead process left."""
    with files.DataDirLock(setup.config.storage.folder):
        pass


async def _repair_index(setup: Setup, _check: str) -> None:
    """Remove the index file and rebuild it from the notes."""
    config = setup.config
    await asyncio.to_thread(queries.remove, config.storage.folder / INDEX_FOLDER / queries.NAME)
    memory = Memory.from_settings(Settings(config), setup.clock)
    try:
        await memory.index.sync("doctor")
    finally:
        await memory.close()


async def _restore(setup: Setup, _check: str) -> None:
    """Complete a restore that was interrupted."""
    await asyncio.to_thread(restore.finish, setup.config.storage.folder)


async def _move(setup: Setup, _check: str) -> None:
    """Complete a move from the storage folder into the server that is configured."""
    config = setup.config
    url = reveal(config.storage.url)
    async with (
        places.folder(config.storage.folder, config.workspace) as source,
        places.server(url, config.storage.node_timeout) as target,
    ):
        await Move(source, target, setup.clock).run()


async def _register(setup: Setup, check: str) -> None:
    """Register the webhook and the command menu with a platform again."""
    channel = services.made(setup, check)
    await channel.publish_commands(menus())
    await channel.register()


REPAIRS: Final[Mapping[Repair, Callable[[Setup, str], Awaitable[None]]]] = {
    "restore": _restore,
    "move": _move,
    "lock": _lock,
    "modes": _modes,
    "index": _repair_index,
    "register": _register,
}
