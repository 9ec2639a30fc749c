"""The state of backups: when one was made, tested, and what went wrong.

The schedule (`bot.portability.schedule`) writes it; whoever tells people of backups reads it here:
`state = await database.read(backup_state.read)`, then `state.troubles(config.backup, now)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import orjson

from bot.config import BackupConfig
from bot.storage import Transaction
from bot.storage.records import from_json, keep, value_of

KEY = "backups"
RETRY_MS = {"made": 10 * 60_000, "tested": 6 * 3_600_000}  # after one that failed
LATE = 2.0  # times the time between two, after which somebody should look
_HOUR_MS = 3_600_000

What = Literal["made", "tested"]
Trouble = Literal["never_made", "failing", "late", "never_tested", "test_failed"]
"""A problem with the backups.

"never_made" and "never_tested": it has not happened yet. "failing": the last try made none.
"late": the newest one is much older than it should be. "test_failed": it cannot be restored.
"""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The last results of something that is done again and again.

    Attributes:
        at: when it last succeeded, in ms since the epoch; 0 for never.
        archive: the name of that file.
        size: of that file, in bytes.
        failed_at: the last try, if it failed; else 0.
        failing_since: the first try that failed since one succeeded; else 0.
        failure: why, in a sentence; it names files, but nothing that people said.
    """

    at: int = 0
    archive: str = ""
    size: int = 0
    failed_at: int = 0
    failing_since: int = 0
    failure: str = ""

    def is_due(self, now: int, every_ms: float, retry_ms: float) -> bool:
        """True when it is to be done; also when a clock was set back."""
        if self.failed_at and 0 <= now - self.failed_at < retry_ms:
            return False
        return not 0 < self.at <= now < self.at + every_ms

    def succeeded(self, archive: str, size: int, now: int) -> JobRecord:
        """It went well."""
        return JobRecord(now, archive, size)

    def failed(self, why: str, now: int) -> JobRecord:
        """It did not."""
        since = self.failing_since or now
        return replace(self, failed_at=now, failing_since=since, failure=why)


@dataclass(frozen=True, slots=True)
class BackupState:
    """The state of backups.

    Attributes:
        bot: what tells this bot's files from others in the same folder.
        made: how making them goes.
        tested: how restoring them for a test goes.
        other_disk: the folder of the newest one, when that was on another disk than what it is of.
    """

    bot: str = ""
    made: JobRecord = JobRecord()
    tested: JobRecord = JobRecord()
    other_disk: str = ""

    def troubles(self, config: BackupConfig, now: int) -> tuple[Trouble, ...]:
        """The problems, the most urgent first; none where no backups are asked for."""
        if config.folder is None:
            return ()
        found: list[Trouble] = []
        if self.made.failed_at:
            found.append("failing")
        if not self.made.at:
            found.append("never_made")
        elif now - self.made.at > LATE * config.every_hours * _HOUR_MS:
            found.append("late")
        if self.tested.failed_at:
            found.append("test_failed")
        elif config.test_days and self.made.at and not self.tested.at:
            found.append("never_tested")
        return tuple(found)

    def record(self, what: What) -> JobRecord:
        """One of both."""
        return self.made if what == "made" else self.tested

    def is_due(self, what: What, config: BackupConfig, now: int) -> bool:
        """True when it is to be done."""
        every = _HOUR_MS * (config.every_hours if what == "made" else config.test_days * 24)
        if config.folder is None or not every or (what == "tested" and not self.made.at):
            return False
        return self.record(what).is_due(now, every, RETRY_MS[what])

    def with_record(self, what: What, record: JobRecord) -> BackupState:
        """With another record of one of both."""
        return replace(self, made=record) if what == "made" else replace(self, tested=record)


@dataclass(frozen=True, slots=True)
class BackupFiles:
    """The state of backups, their folder, and the files in it by when they were made (ms)."""

    state: BackupState
    folder: Path
    found: Mapping[int, Path]
    problem: str = ""


def read(tx: Transaction) -> BackupState:
    """The state as it is stored."""
    return value_of(tx, KEY, partial(from_json, BackupState)) or BackupState()


def write(tx: Transaction, state: BackupState, now: int) -> None:
    """Store the state."""
    keep(tx, KEY, orjson.dumps(asdict(state)).decode(), now)
