"""What `confidant doctor --fix` does, and nothing else: each mends what one finding says.

None of it loses anything, and each can be stopped anywhere and done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bot.channel import CommandMenu, Registers, Repair, reveal
from bot.commands.menu import menus
from bot.config import Settings
from bot.doctor import channels, storage
from bot.doctor.setup import Setup
from bot.errors import ConfidantError
from bot.memory.index import schema
from bot.memory.memory import INDEX_FOLDER, Memory
from bot.portability import places, swap
from bot.portability.move import Move
from bot.storage import files


async def repair(setup: Setup, what: Repair, check: str) -> None:
    """Mend what a finding of a check says.

    Raises:
        ConfidantError: it cannot be mended; the message says why.
    """
    try:
        await REPAIRS[what](setup, check)
    except OSError as error:
        raise ConfidantError(f"It could not be mended: {error.strerror or error}.") from error


async def _modes(setup: Setup, _check: str) -> None:
    """Take others' rights from what is for the program's own account only."""
    await asyncio.to_thread(files.mend, storage.private_files(setup))


async def _lock(setup: Setup, _check: str) -> None:
    """Take the lock that a dead process has left its number in, and give it back empty."""
    with files.DataDirLock(setup.config.storage.folder):
        pass


async def _index(setup: Setup, _check: str) -> None:
    """Remove the index file, and make another one of the notes."""
    config = setup.config
    await asyncio.to_thread(schema.remove, config.storage.folder / INDEX_FOLDER / schema.NAME)
    memory = Memory.of(Settings(config), setup.clock)
    try:
        await memory.index.sync("doctor")
    finally:
        await memory.close()


async def _restore(setup: Setup, _check: str) -> None:
    """Complete a restore that was interrupted."""
    await asyncio.to_thread(swap.finish, setup.config.storage.folder)


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
    """Tell a platform once more where to call, and which commands there are."""
    channel = channels.made(setup, check)
    if isinstance(channel, CommandMenu):
        await channel.publish_commands(menus())
    if isinstance(channel, Registers):
        await channel.register()


REPAIRS: Final[Mapping[Repair, Callable[[Setup, str], Awaitable[None]]]] = {
    "restore": _restore,
    "move": _move,
    "lock": _lock,
    "modes": _modes,
    "index": _index,
    "register": _register,
}
