"""What the doctor says of backups of everything, by how they went."""

from pathlib import Path

import pytest

from bot.config import BackupConfig
from bot.doctor import storage
from bot.health import worst
from bot.storage.backup_state import BackupState, JobRecord
from bot.views.findings import told
from tests.support import NOON

DAY = 86_400_000
FOLDER = BackupConfig(folder=Path("/mnt/usb"))
MADE = JobRecord(at=NOON - DAY // 2, archive="one.backup", size=1)
TESTED = JobRecord(at=NOON - DAY)


@pytest.mark.parametrize(
    ("config", "state", "said"),
    [
        (BackupConfig(), BackupState(), [("warning", "no backup is kept on another disk")]),
        (FOLDER, BackupState(), [("warning", "no full backup in /mnt/usb yet")]),
        (FOLDER, BackupState(made=MADE), [("warning", "no backup has been test-restored yet")]),
        (FOLDER, BackupState(made=MADE, tested=TESTED), [("ok", "on 2026-11-")]),
        (FOLDER, BackupState(made=MADE.failed("the disk is gone", NOON), tested=TESTED),
         [("error", "no full backup could be made in /mnt/usb: the disk is gone")]),
        (FOLDER, BackupState(made=JobRecord(at=NOON - 3 * DAY), tested=TESTED),
         [("error", "the latest full backup is from 2026-11-")]),
        (FOLDER, BackupState(made=MADE, tested=TESTED.failed("it is cut off", NOON)),
         [("error", "cannot be restored: it is cut off")]),
    ],
)  # fmt: skip
def test_each_trouble_is_told_with_what_to_do(config, state, said):
    found = [told(each, "en") for each in storage.backups_of_everything(state, config, NOON)]
    assert [each.level for each in found] == [level for level, _ in said]
    assert [part in each.text for each, (_, part) in zip(found, said, strict=True)] == [True]
    assert [bool(each.fix) for each in found] == [each.level != "ok" for each in found]


def test_the_worst_of_nothing_is_well():
    assert worst(()) == "ok"
    assert worst(storage.backups_of_everything(BackupState(), FOLDER, NOON)) == "warning"
