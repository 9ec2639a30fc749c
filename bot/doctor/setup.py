"""What the doctor looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from bot.channel import ChannelPlugin
from bot.clock import Clock
from bot.config import Config
from bot.storage import Database
from bot.storage.files import DATABASE_NAME


@dataclass(frozen=True, slots=True)
class Setup:
    """A configuration and what it names.

    Attributes:
        opened: the database, for as long as an `async with`; its tables are never changed here
            before it is known that they are those of this version.
        secrets: the files that hold keys and tokens, there or not.
    """

    config: Config
    plugins: Mapping[str, ChannelPlugin]
    clock: Clock
    opened: Callable[[], AbstractAsyncContextManager[Database]]
    secrets: tuple[Path, ...] = ()

    @property
    def is_shared(self) -> bool:
        """True where everything is in a PostgreSQL."""
        return self.config.storage.url is not None

    @property
    def has_database(self) -> bool:
        """False before the bot was started for the first time."""
        return self.is_shared or (self.config.storage.folder / DATABASE_NAME).exists()
