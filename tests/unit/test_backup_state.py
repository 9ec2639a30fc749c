"""How backups are doing, as it is told to people and decides what is due."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.clock import DAY_MS
from bot.config import BackupConfig
from bot.storage import backup_state, sqlite
from bot.storage.backup_state import BackupState, JobRecord, Trouble
from bot.storage.sqlite import SqliteTransaction
from tests.support import NOON

HOUR = 3_600_000
CONFIG = BackupConfig(folder=Path("/mnt"), every_hours=6, test_days=7)
GOOD = JobRecord(NOON, "a.backup", 7)
MOMENTS = st.integers(0, 10 * DAY_MS)


@pytest.mark.parametrize(
    ("state", "later", "config", "found"),
    [
        (BackupState(), 0, CONFIG, ("never_made",)),
        (BackupState("x", GOOD, GOOD), 11 * HOUR, CONFIG, ()),
        (BackupState("x", GOOD, GOOD), 13 * HOUR, CONFIG, ("late",)),
        (
            BackupState("x", GOOD, GOOD),
            13 * HOUR,
            CONFIG.model_copy(update={"every_hours": 12}),
            (),
        ),
        (BackupState("x", GOOD), 0, CONFIG, ("never_tested",)),
        (BackupState("x", GOOD), 0, CONFIG.model_copy(update={"test_days": 0}), ()),
        (BackupState("x", GOOD.failed("full", NOON), GOOD), 0, CONFIG, ("failing",)),
        (BackupState("x", GOOD, GOOD.failed("torn", NOON)), 0, CONFIG, ("test_failed",)),
        (BackupState().with_record("made", JobRecord().failed("full", NOON)), 0, CONFIG,
         ("failing", "never_made")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_from_the_record(
    state: BackupState, later: int, config: BackupConfig, found: tuple[Trouble, ...]
):
    assert state.troubles(config, NOON + later) == found


def test_where_no_folder_is_named_nothing_is_missing():
    assert BackupState().troubles(BackupConfig(), NOON) == ()
    assert not BackupState().is_due("made", BackupConfig(), NOON)
    assert BackupState().troubles(BackupConfig(folder=Path("/mnt")), NOON) == ("never_made",)
    assert BackupState().is_due("made", BackupConfig(folder=Path("/mnt")), NOON)


def test_what_is_due_is_told_from_the_record():
    state = BackupState("x", GOOD)
    assert not state.is_due("made", CONFIG, NOON + 6 * HOUR - 1)
    assert state.is_due("made", CONFIG, NOON + 6 * HOUR)
    assert state.is_due("tested", CONFIG, NOON)
    assert not state.is_due("tested", CONFIG.model_copy(update={"test_days": 0}), NOON)
    assert not BackupState("x").is_due("tested", CONFIG, NOON)
    tested = state.with_record("tested", GOOD)
    assert not tested.is_due("tested", CONFIG, NOON + 7 * DAY_MS - 1)
    assert tested.is_due("tested", CONFIG, NOON + 7 * DAY_MS)
    failed = BackupState("x", GOOD, GOOD.failed("torn", NOON))
    assert not failed.is_due("tested", CONFIG, NOON + 5 * HOUR)


def test_a_failure_keeps_what_succeeded_and_since_when_it_fails():
    once = GOOD.failed("full", NOON + 1)
    twice = once.failed("gone", NOON + 2)
    assert (twice.at, twice.archive) == (GOOD.at, GOOD.archive)
    assert (twice.failing_since, twice.failed_at, twice.failure) == (NOON + 1, NOON + 2, "gone")
    assert twice.succeeded("b.backup", 8, NOON + 3) == JobRecord(NOON + 3, "b.backup", 8)


@given(at=MOMENTS, failed=MOMENTS, now=MOMENTS, every=st.integers(1, 30))
def test_it_is_always_due_again(at: int, failed: int, now: int, every: int):
    record = JobRecord(at, failed_at=failed)
    period = every * HOUR
    # However the clock was set, it never takes longer than all that it waits for.
    assert record.is_due(now + period + max(at, failed) + HOUR, period, HOUR)
    if 0 < at <= now < at + period:
        assert not record.is_due(now, period, HOUR)


def test_it_is_stored_as_it_is():
    connection = apsw.Connection(":memory:")
    tx = SqliteTransaction(connection)
    sqlite.migrate(tx, Path(), keeps=False)
    assert backup_state.read(tx) == BackupState()
    state = BackupState("ab", GOOD, GOOD.failed("the disk is full", NOON))
    backup_state.write(tx, state, NOON)
    assert backup_state.read(tx) == state
    connection.close()
