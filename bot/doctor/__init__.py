"""Checks of the set-up, repairs of what they find, and urgent messages to the owner.

`checks` has the list; each module beside it checks one thing and returns `Finding`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bot.channel import ChannelPlugin
from bot.clock import Clock
from bot.config import Config
from bot.errors import StorageNotMade
from bot.storage import Database, Transaction
from bot.storage.files import DATABASE_NAME

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setup:
    """A configuration and what it names.

    Attributes:
        opened: the database, for as long as an `async with`; only where it `has_database`, as
            tables of another version would be changed.
        secrets: the files that hold keys and tokens, there or not.
        is_usable: False once it is known that the database is damaged, half of something, or of
            another version: then nothing opens it, nor what belongs to it.
        tries_models: True to ask models what they can do, which costs a little.
    """

    config: Config
    plugins: Mapping[str, ChannelPlugin]
    clock: Clock
    opened: Callable[[], AbstractAsyncContextManager[Database]]
    secrets: tuple[Path, ...] = ()
    is_usable: bool = True
    tries_models: bool = False

    @property
    def is_shared(self) -> bool:
        """True if everything is in a PostgreSQL."""
        return self.config.storage.url is not None

    @property
    def has_database(self) -> bool:
        """True if it may be opened; false before the first start of the bot."""
        path = self.config.storage.folder / DATABASE_NAME
        return self.is_usable and (self.is_shared or path.exists())

    async def read(self, work: Callable[[Transaction], T]) -> T | None:
        """Read from the database; None if there is none, or it has no tables yet.

        Raises:
            StorageError: it cannot be read.
        """
        if not self.has_database:
            return None
        try:
            async with self.opened() as database:
                return await database.read(work)
        except StorageNotMade:  # a finding of the storage
            return None
