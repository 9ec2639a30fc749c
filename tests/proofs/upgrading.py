"""Opens a storage folder of the first tables and dies on the way; see `tests.proofs.dying`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from bot.composition.core import open_backend
from tests.proofs.dying import Counter, main
from tests.support import FakeClock, make_config


async def upgrade(words: list[str], _counter: Counter) -> None:
    """What the program does before anything else is begun."""
    async with AsyncExitStack() as stack:
        await open_backend(make_config(Path(words[-1]))[0], FakeClock(), stack)


if __name__ == "__main__":
    main(upgrade)
