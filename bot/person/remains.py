"""What still holds somebody after they were erased, outside of what the program works on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bot.archive import keeping
from bot.archive.swap import ASIDE
from bot.clock import DAY_MS, to_the_minute
from bot.config import BackupConfig, Config
from bot.storage.files import DATABASE_NAME

HOUR_MS = 3_600_000
# What stands in the name of a database that was set aside.
SET_ASIDE = ("damaged-", "older-", "before-restore-")


@dataclass(frozen=True, slots=True)
class Remains:
    """A file or folder that may hold somebody; `until` says what makes it go."""

    path: Path
    made_at: int
    until: str

    def line(self) -> str:
        """In one line."""
        return f"{self.path} (of {to_the_minute(self.made_at, None)}): {self.until}"


def remains(config: Config, bot: str) -> list[Remains]:
    """Everything this machine tells of that was kept before now, and is not changed.

    `bot` is what backups of everything have in their names.
    """
    folder = config.storage.folder
    aside = [
        *folder.glob(f"{ASIDE}*"),
        *(path for word in SET_ASIDE for path in folder.glob(f"{DATABASE_NAME}.{word}*")),
        *config.workspace.parent.glob(f"{config.workspace.name}-{ASIDE}*"),
    ]
    kept = [
        Remains(path, path.stat().st_mtime_ns // 1_000_000, "until you remove it")
        for path in sorted(aside)
    ]
    return [*_scheduled(config.backup, bot), *kept]


def _scheduled(config: BackupConfig, bot: str) -> list[Remains]:
    """The backups that [backup] makes, and until when it keeps each."""
    if config.target is None or not bot:
        return []
    try:
        found = keeping.found(config.target, bot)
    except OSError:
        return [Remains(config.target, 0, "it cannot be looked into now")]
    longest = max(config.kept * config.every_hours * HOUR_MS, (config.kept_weeks + 1) * 7 * DAY_MS)
    return [
        Remains(
            path,
            at,
            f"until {to_the_minute(round(at + longest), None)} at the latest, while "
            "backups are made",
        )
        for at, path in sorted(found.items())
    ]


def named_in(config: Config, names: tuple[str, ...]) -> list[str]:
    """Where the configuration still names somebody, in words."""
    found: list[str] = []
    for link, places in config.session.identity_links.items():
        if link in names or not set(places).isdisjoint(names):
            found.append(f"[session.identity_links] {link}")
    for channel in type(config.channels).model_fields:
        section = getattr(config.channels, channel)
        known = {f"{channel}:{each}" for each in getattr(section, "allow_from", ())}
        if not known.isdisjoint(names):
            found.append(f"[channels.{channel}] allow_from")
    return found
