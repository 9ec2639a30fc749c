"""How the parts are doing: replies, outages, and a report that costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.channel import Finding
from bot.config import BackupConfig
from bot.doctor import storage
from bot.errors import ModelAuth, ModelRateLimited
from bot.health import LATELY_MS, SURE_MS, Check, Outage, Readiness, Tries, worst
from bot.storage.backup_state import BackupState, JobRecord
from bot.views.outcomes import told
from tests.support import NOON

MINUTE = 60_000


def states(*outcomes: Exception | None, after: int = 0) -> str:
    now = [0]
    replies = Tries("replies", lambda: now[0])
    for outcome in outcomes:
        replies.note(outcome)
    now[0] = after
    return replies.check().state


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([], "ok"),
        ([ModelAuth()], "ok"),
        ([ModelAuth()] * 2, "degraded"),
        ([ModelAuth()] * 3, "down"),
        ([ModelAuth(), ModelRateLimited(), ModelAuth()], "down"),
        ([*[ModelAuth()] * 9, None], "ok"),
        ([*[ModelAuth()] * 9, None, ModelAuth()], "ok"),
    ],
)
def test_replies_that_fail_one_after_the_other_mean_that_the_bot_cannot_answer(outcomes, state):
    assert states(*outcomes) == state


def test_what_failed_long_ago_says_nothing_of_now():
    assert states(*[ModelAuth()] * 5, after=LATELY_MS) == "ok"


def test_it_is_said_by_what_they_fail_and_nothing_the_service_wrote():
    replies = Tries("replies", lambda: 0)
    for _ in range(3):
        replies.note(ModelAuth("key sk-secret is wrong"))
    detail = told(replies.check().finding, "en").text
    assert detail.startswith(
        "the last 3 replies failed. The model's service does not accept the key."
    )
    assert "secret" not in detail


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * MINUTE)), max_size=60))
def test_the_owner_is_told_by_turns_and_never_of_what_did_not_last(looks):
    outage, now, told = Outage(), 1, list[str]()
    since = {True: 0, False: 0}
    is_down_before = False
    for is_down, gone in looks:
        now += gone
        if is_down != is_down_before:
            since[is_down] = now
        is_down_before = is_down
        outage = outage.after(("storage",) if is_down else (), now)
        if outage.is_due(now):
            assert now - since[is_down] >= SURE_MS
            if outage.is_down or outage.is_told:
                told.append("cannot" if is_down else "can again")
            else:
                assert since[False] - outage.began >= SURE_MS
                assert outage.parts == ("storage",)
                told.append("could not")
            outage = outage.told()
            assert not outage.is_due(now)
    running = [each for each in told if each != "could not"]
    assert running == [("cannot", "can again")[number % 2] for number in range(len(running))]
    before = dict(enumerate(told))
    assert all(before.get(n - 1) != "cannot" for n, each in before.items() if each == "could not")


def test_an_outage_of_which_nobody_could_be_told_is_told_once_it_is_over():
    outage = Outage().after(("storage",), MINUTE)
    assert outage.is_due(2 * MINUTE)  # and the database does not take it
    outage = outage.after((), 9 * MINUTE)
    assert not outage.is_due(9 * MINUTE)
    assert outage.is_due(10 * MINUTE)
    assert (outage.began, outage.since, outage.parts) == (MINUTE, 9 * MINUTE, ("storage",))
    assert not outage.told().is_due(11 * MINUTE)


def test_the_worst_part_decides():
    checks = tuple(
        Check(state, Finding(level))
        for level, state in (("ok", "ok"), ("warning", "degraded"), ("error", "down"))
    )
    assert [Readiness(checks[:count]).state for count in range(4)] == [
        *("ok", "ok", "degraded", "down")
    ]
    assert [check.name for check in Readiness(checks).of("down")] == ["down"]


@pytest.fixture
def monitor(monkeypatch):
    """A monitor whose look at the parts waits for a gate, and is counted."""
    from bot import housekeeping

    made = object.__new__(housekeeping.Monitor)
    made.replies, made._began = Tries("replies", lambda: 0), 0.0
    made._last, made._at, made._looking = None, -9.0, None
    looks = SimpleNamespace(gate=asyncio.Event(), count=0, state="ok")

    async def checks() -> AsyncGenerator[Check]:
        looks.count += 1
        await looks.gate.wait()
        if looks.state == "fails":
            raise RuntimeError("a secret detail")
        yield Check("storage", Finding("error" if looks.state == "down" else "ok"))

    monkeypatch.setattr(made, "_checks", checks, raising=False)
    monkeypatch.setattr(housekeeping, "PATIENCE", 0.01)
    monkeypatch.setattr(housekeeping, "HANGS", 0.05)
    return made, looks


async def test_the_time_limit_of_a_report_holds_whatever_hangs(monitor):
    monitor, looks = monitor
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await asyncio.gather(*(monitor.report() for _ in range(50)))
    assert {report.state for report in found} == {"down"}
    assert [check.finding.id for check in found[0].checks] == ["health.starting"]
    while [check.name for check in (await monitor.report()).checks] != ["storage", "replies"]:
        assert loop.time() - began < 5
    assert loop.time() - began >= 0.05  # as long as `HANGS`
    looks.gate.set()
    await monitor._looking
    found = await asyncio.gather(*(monitor.report() for _ in range(50)))
    assert {report.state for report in found} == {"ok"}
    assert looks.count == 1


async def test_a_look_that_takes_its_time_tells_what_was_known_before_and_is_no_outage(
    monitor, monkeypatch
):
    monitor, looks = monitor
    looks.gate.set()
    assert (await monitor.report()).state == "ok"
    looks.gate.clear()
    monkeypatch.setattr("bot.housekeeping.FRESH", 0)
    assert (await monitor.report()).state == "ok"
    await asyncio.sleep(0.05)  # as long as `HANGS`
    assert (await monitor.report()).state == "down"
    looks.gate.set()
    await monitor._looking
    assert (await monitor.report()).state == "ok"


async def test_what_a_look_found_long_ago_is_not_told_as_new(monitor, monkeypatch):
    monitor, looks = monitor
    looks.state = "down"
    await monitor.report()
    looks.gate.set()
    await monitor._looking  # nobody asks when it ends
    looks.state = "ok"
    monkeypatch.setattr("bot.housekeeping.FRESH", 0)
    monkeypatch.setattr("bot.housekeeping.PATIENCE", 10)
    monkeypatch.setattr("bot.housekeeping.HANGS", 20)
    assert (await monitor.report()).state == "ok"


async def test_a_look_that_fails_is_down_for_everybody_and_tells_nothing(monitor, monkeypatch):
    monitor, looks = monitor
    looks.state = "fails"
    looks.gate.set()
    monkeypatch.setattr("bot.housekeeping.HANGS", 20)
    with capture_logs() as logs:
        found = await asyncio.gather(*(monitor.report() for _ in range(5)))
    assert {report.state for report in found} == {"down"}
    assert "secret" not in str(found)
    assert [each["event"] for each in logs] == ["health.failed"]


# The doctor on full backups.

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
def test_the_doctor_tells_each_trouble_of_full_backups_with_what_to_do(config, state, said):
    found = [told(each, "en") for each in storage.backups_of_everything(state, config, NOON)]
    assert [each.level for each in found] == [level for level, _ in said]
    assert [part in each.text for each, (_, part) in zip(found, said, strict=True)] == [True]
    assert [bool(each.fix) for each in found] == [each.level != "ok" for each in found]


def test_the_worst_of_nothing_is_well():
    assert worst(()) == "ok"
    assert worst(storage.backups_of_everything(BackupState(), FOLDER, NOON)) == "warning"
