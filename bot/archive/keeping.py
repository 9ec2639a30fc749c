"""Which backups in a folder are a bot's own, and which of them are kept."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from bot.archive.making import PARTIAL
from bot.clock import DAY_MS

_WEEK_MS = 7 * DAY_MS
_MOMENT = "%Y%m%d-%H%M%S"


def name_of(bot: str, made_at: int) -> str:
    """What a backup is called that is made now (ms), in UTC."""
    return f"confidant-{bot}-{datetime.fromtimestamp(made_at / 1000, UTC):{_MOMENT}}.backup"


def found(folder: Path, bot: str) -> dict[int, Path]:
    """The backups of a bot in a folder, by when they were made, as their names say.

    Raises:
        OSError: it cannot be looked into.
    """
    shape = re.compile(rf"confidant-{re.escape(bot)}-(\d{{8}}-\d{{6}})\.backup")
    backups: dict[int, Path] = {}
    for path in folder.iterdir():
        match = shape.fullmatch(path.name)
        if match is not None:
            with suppress(ValueError):  # no day of any month
                moment = datetime.strptime(match[1], _MOMENT).replace(tzinfo=UTC)
                backups[round(moment.timestamp() * 1000)] = path
    return backups


def is_other_disk(folder: Path, home: Path) -> bool:
    """True when a folder is on another file system than the storage folder, which may come later.

    Raises:
        OSError: one cannot be looked at.
    """
    near = next(each for each in (home.resolve(), *home.resolve().parents) if each.exists())
    return folder.stat().st_dev != near.stat().st_dev


def outlived(made: Collection[int], now: int, kept: int, weeks: int) -> set[int]:
    """Those of the moments (ms) whose backups may go.

    The `kept` newest stay, and the newest of each of the last `weeks` weeks in which there are any.
    What is from after `now` stays too: the clock was wrong then, or is now.
    """
    past = sorted((moment for moment in made if moment <= now), reverse=True)
    newest: dict[int, int] = {}
    for moment in past:
        newest.setdefault(moment // _WEEK_MS, moment)
    staying = {*past[:kept], *list(newest.values())[:weeks]}
    return set(past) - staying


def prune(folder: Path, bot: str, now: int, kept: int, weeks: int) -> int:
    """Remove the backups of a bot that are not kept; how many those were.

    Raises:
        OSError: one cannot be removed.
    """
    backups = found(folder, bot)
    gone = outlived(backups, now, kept, weeks)
    for moment in sorted(gone):
        backups[moment].unlink(missing_ok=True)
    return len(gone)


def remove_unfinished(folder: Path, bot: str) -> None:
    """Remove what a kill left of a bot's backups; only while it makes none.

    Raises:
        OSError: it cannot be removed.
    """
    for path in folder.glob(f".confidant-{bot}-*.backup{PARTIAL}"):
        path.unlink(missing_ok=True)
