"""The extra that talks to a PostgreSQL: if it is here, and the command line as its guest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from bot.channel import reveal
from bot.config import Config
from bot.coordination import Shared
from bot.errors import ConfigError
from bot.invocation import installing

NO_EXTRA = (
    "[storage] url names a PostgreSQL, and what talks to one is not installed. "
    f"Install it with `{installing('cluster')}`, or remove the option."
)


@contextmanager
def needing_extra() -> Generator[None]:
    """Say what to install when what is imported within a `with` is missing.

    Raises:
        ConfigError: it is.
    """
    try:
        yield
    except ImportError as exc:
        raise ConfigError(NO_EXTRA) from exc


@asynccontextmanager
async def visiting(config: Config, *, migrates: bool = False) -> AsyncGenerator[Shared | None]:
    """The backend of the command line beside nodes that may run; None without a database URL.

    Raises:
        StorageNotMade: the tables are missing or older, and it was not to migrate them.
        StorageError: the database cannot be used; the message says what to do.
        ConfigError: the extra for it is not installed.
    """
    url = reveal(config.storage.url)
    if not url:
        yield None
        return
    with needing_extra():
        from bot.cluster import visitor  # noqa: PLC0415 - its packages are an extra
    async with visitor.visiting(url, config.storage.cluster, migrates=migrates) as here:
        yield Shared(here.database, here)
