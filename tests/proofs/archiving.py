"""Makes backups and restores them, and dies on the way; see `tests.proofs.dying`.

Below the folder are `home`, a storage folder, `x.backup`, which is made or restored, and `notes`,
the workspace where that is not in the storage folder.
"""

from __future__ import annotations

from pathlib import Path

from bot.config import Config
from bot.portability import backup, restore, swap
from tests.proofs.dying import Counter, main
from tests.support import FakeClock, make_config


def config_of(base: Path) -> Config:
    """The configuration of a folder of these proofs."""
    memory = {"workspace": base / "notes"} if (base / "notes").exists() else {}
    return make_config(base / "home", memory=memory)[0]


async def work(words: list[str], counter: Counter) -> None:
    what, place = words
    base, clock = Path(place), FakeClock()
    config, archive = config_of(base), base / "x.backup"

    def advance(_size: int) -> None:
        counter.step()

    if what == "backup":
        await backup.make(config, archive, None, "[agent]\n", clock=clock, advance=advance)
    elif what == "finish":
        swap.finish(config.storage.folder)
    else:
        await restore.restore(
            *(archive, config.storage.folder, config.workspace, str),
            clock=clock,
            advance=advance,
        )


if __name__ == "__main__":
    main(work, counts_sqlite=False)
