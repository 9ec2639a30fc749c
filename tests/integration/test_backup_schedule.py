"""Backups that are made by themselves, tried, told of when they fail, and let go of."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.clock import DAY_MS
from bot.doctor import storage as doctor
from bot.errors import ArchiveRefused
from bot.metrics import Metrics
from bot.portability import backup as making
from bot.portability import restore, schedule
from bot.portability.archive import Stopped, in_thread
from bot.portability.schedule import Backups
from bot.storage import backup, backup_state
from bot.storage.backup_state import BackupState, JobRecord
from bot.storage.sqlite import SqliteDatabase
from tests.fakes.checkup import looked
from tests.support import Engine, FakeClock, beside, make_config, running, until, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

WEEK = 7 * DAY_MS


class OneAtATime:
    """`bot.coordination.Coordination`, as far as many nodes take turns."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncIterator[asyncio.Event]:
        assert name == schedule.OWNED
        async with self._lock:
            yield asyncio.Event()


class Kept:
    """A storage folder with conversations, and its backups; nobody talks."""

    def __init__(self, home: Path, target: Path, clock: FakeClock, **rules: Any) -> None:
        self.home, self.target, self.clock = home, target, clock
        self.config, _ = make_config(home, backup={"folder": target, **rules})
        self.metrics: list[Metrics] = []
        self.alone = OneAtATime()
        self.database: SqliteDatabase

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Backups]:
        self.database = await SqliteDatabase.open(self.home / "confidant.db")
        try:
            yield self.backups()
        finally:
            await self.database.close()

    def backups(self) -> Backups:
        """Those of another program."""
        self.metrics.append(Metrics())
        return Backups(
            *(self.config, self.database, self.alone, self.clock),
            metrics=self.metrics[-1],
            settings=lambda: "[a]\n",
        )

    async def state(self) -> BackupState:
        return await self.database.read(backup_state.read)

    def files(self) -> list[Path]:
        return sorted(self.target.iterdir())

    def counted(self, what: str, result: str) -> float:
        labels = {"what": what, "result": result}
        found = (
            each.registry.get_sample_value("confidant_backups_total", labels)
            for each in self.metrics
        )
        return sum(each or 0 for each in found)


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    async def talk(home: Path) -> None:
        async with running(home) as engine:
            await engine.ask("the code of my bike is 4711 水母")

    home = tmp_path_factory.mktemp("talked")
    asyncio.run(talk(home))
    return home


@pytest.fixture
def kept(tmp_path: Path, talked: Path) -> Any:
    def make(**rules: Any) -> Kept:
        home, target = tmp_path / "home", tmp_path / "usb"
        if not home.exists():
            home.mkdir()
            target.mkdir()
            (home / "confidant.db").write_bytes((talked / "confidant.db").read_bytes())
        return Kept(home, target, FakeClock(), **rules)

    return make


async def test_one_is_made_and_tried_as_often_as_configured(kept):
    found = kept(every_hours=6, test_days=2)
    async with found.open() as backups:
        await backups.look()
        (first,) = found.files()
        assert first.stat().st_mode & 0o777 == 0o600
        state = await found.state()
        assert (state.made.at, state.made.archive) == (found.clock(), first.name)
        assert state.made.size == first.stat().st_size
        assert (state.tested.at, state.tested.archive) == (found.clock(), first.name)
        assert state.troubles(found.config.backup, found.clock()) == ()
        found.clock.advance(hours=5.9)
        await backups.look()
        assert found.files() == [first]
        found.clock.advance(hours=0.2)
        await backups.look()
        assert len(found.files()) == 2
        assert (await found.state()).tested.archive == first.name
        found.clock.advance(days=2)
        await found.backups().look()  # also after a restart
        assert len(found.files()) == 3
        assert (await found.state()).tested.archive == found.files()[-1].name
        assert (found.counted("made", "ok"), found.counted("tested", "ok")) == (3, 2)
    assert not list((found.home / "backups").rglob("*"))[1:]


async def test_where_no_folder_is_named_none_is_made(kept):
    found = kept()
    found.config, _ = make_config(found.home)
    async with found.open() as backups:
        await backups.look()
        assert (await found.state()) == BackupState()
    assert found.files() == []


async def test_as_many_are_kept_as_configured(kept):
    found = kept(every_hours=12, kept=3, kept_weeks=2, test_days=0)
    stranger = found.target / "confidant-abcdef-20200101-000000.backup"
    stranger.write_text("another bot's")
    (found.target / "notes.txt").write_text("mine")
    async with found.open() as backups:
        for _ in range(40):
            await backups.look()
            found.clock.advance(hours=12)
        bot = (await found.state()).bot
    made = schedule.found(found.target, bot)
    # The newest three, one of them being the newest of its week, and that of the week before.
    assert len(made) == 4
    newest = sorted(made, reverse=True)
    assert newest[0] - newest[2] == DAY_MS
    assert newest[3] // WEEK == newest[0] // WEEK - 1
    assert stranger.read_text() == "another bot's"
    assert len(found.files()) == 6


@pytest.mark.proof
async def test_what_is_made_by_itself_is_sealed_when_there_is_a_passphrase(kept):
    found = kept(passphrase="correct horse")
    async with found.open() as backups:
        await backups.look()
        assert (await found.state()).tested.at
    (made,) = found.files()
    assert made.read_bytes().startswith(b"identity.age")
    with pytest.raises(ArchiveRefused, match="passphrase"):
        await restore.rehearse(made, found.home, lambda: "another")


async def test_one_that_fails_is_told_of_and_tried_again(kept):
    found = kept()
    found.target.rmdir()
    async with found.open() as backups:
        with capture_logs() as logs:
            await backups.look()
        assert [each["event"] for each in logs] == ["backup.failed"]
        state = await found.state()
        assert "cannot be used" in state.made.failure
        assert str(found.target) in state.made.failure
        assert state.troubles(found.config.backup, found.clock()) == ("failing", "never_made")
        assert found.counted("made", "failed") == 1
        since = found.clock()
        found.target.mkdir()
        found.clock.advance(minutes=9)
        await backups.look()
        assert found.files() == []
        found.clock.advance(minutes=2)
        await backups.look()
        state = await found.state()
        assert len(found.files()) == 1
        assert (state.made.failing_since, state.made.failure) == (0, "")
        assert state.made.at > since


async def test_where_the_other_disk_is_not_mounted_nothing_is_written_beside(kept, monkeypatch):
    found, is_mounted = kept(), True
    monkeypatch.setattr(schedule, "is_other_disk", lambda _folder, _home: is_mounted)
    async with found.open() as backups:
        await backups.look()
        assert (await found.state()).other_disk == str(found.target)
        (made,) = found.files()
        made.rename(made.with_suffix(".elsewhere"))
        is_mounted = False
        found.clock.advance(days=1)
        await backups.look()
        assert "not mounted" in (await found.state()).made.failure
        assert not list(found.target.glob("*.backup"))
        elsewhere = found.target.with_name("elsewhere")
        elsewhere.mkdir()
        found.config, _ = make_config(found.home, backup={"folder": elsewhere})
        found.clock.advance(minutes=11)
        await found.backups().look()  # another folder is meant to be where it is
        state = await found.state()
        assert (state.made.failure, state.other_disk) == ("", "")
        assert len(list(elsewhere.iterdir())) == 1


async def test_backups_to_a_folder_of_smb_work_and_the_doctor_names_it(kept, monkeypatch):
    sync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    case = kept()
    mounts = case.home / "mounts"
    mounts.write_text(f"//nas/share {case.target} cifs rw 0 0\n")
    monkeypatch.setattr(doctor, "MOUNTS", mounts)
    async with case.open() as backups:
        await backups.look()
        (made,) = case.files()
        assert made.stat().st_size > 0
    found = [each.text for each in await looked(doctor.check_backups, case.config)]
    assert f"{case.target} is a network folder (cifs)" in found
    assert sum(f"{case.target} cannot be synced" in each for each in found) == 1


def test_a_folder_of_the_same_disk_is_known(tmp_path):
    assert not schedule.is_other_disk(tmp_path, tmp_path / "not" / "yet")
    assert schedule.is_other_disk(Path("/dev"), tmp_path)


async def test_while_somebody_makes_one_by_hand_it_is_put_off(kept):
    found = kept()
    async with found.open() as backups:
        async with making.stage(found.home):
            await backups.look()
            assert found.files() == []
            assert (await found.state()).made == JobRecord()
        await backups.look()
        assert len(found.files()) == 1


async def test_what_was_half_written_counts_for_nothing_and_goes(kept):
    found = kept()
    async with found.open() as backups:
        await backups.look()
        made = found.files()[0].name
        half = found.target / f".{made[:-13]}235959.backup.partial"
        half.write_text("half")
        (found.home / "backups" / backup.STAGE / "confidant.db").write_text("half")
        found.clock.advance(days=1)
        await backups.look()
    assert not half.exists()
    assert len(found.files()) == 2


async def test_while_the_newest_cannot_be_restored_nothing_is_let_go_of(kept):
    found = kept(kept=1, kept_weeks=0, test_days=1)
    async with found.open() as backups:
        await backups.look()
        found.clock.advance(hours=25)
        # It is made again and tried; what is tried is spoiled in between.
        made = found.backups()
        original = made._test

        async def spoiled() -> Any:
            newest = found.files()[-1]
            newest.write_bytes(newest.read_bytes()[:-9])
            return await original()

        made._test = spoiled  # type: ignore[method-assign]
        with capture_logs() as logs:
            await made.look()
        assert "backup.failed" in [each["event"] for each in logs]
        state = await found.state()
        assert "ends too early" in state.tested.failure
        assert state.troubles(found.config.backup, found.clock()) == ("test_failed",)
        (only,) = found.files()
        found.clock.advance(hours=25)
        await backups.look()
        assert only in found.files()  # the one that failed, and the one that does not
        assert (await found.state()).troubles(found.config.backup, found.clock()) == ()
        found.clock.advance(hours=25)
        await backups.look()
        assert only not in found.files()


async def test_of_two_programs_one_makes_it(kept):
    found = kept()
    async with found.open() as backups:
        await asyncio.gather(*(each.look() for each in (backups, found.backups())))
        assert len(found.files()) == 1
        assert found.counted("made", "ok") == 1
        assert found.counted("tested", "ok") == 1


async def test_after_a_week_the_disk_is_lost_and_all_is_there_again(tmp_path):
    home, target = tmp_path / "home", tmp_path / "usb"
    target.mkdir()
    clock, rules = FakeClock(), {"folder": target, "kept": 3, "kept_weeks": 1}
    config, _ = make_config(home, backup=rules)
    for day in range(7):
        async with running(home, clock=clock) as engine:
            await engine.ask(f"on day {day} we sailed")
            note = home / "workspace" / "memory" / "sailing.md"
            write_file(note, "".join(f"- day {each}\n" for each in range(day + 1)))
        async with beside(home) as database:
            await Backups(
                *(config, database, OneAtATime(), clock),
                metrics=Metrics(),
                settings=lambda: "[agent]\n",
            ).look()
        clock.advance(days=1)
    transcripts = kept_in(home)
    shutil.rmtree(home)
    newest = max(target.iterdir())
    await restore.restore(newest, home, home / "workspace", str, clock=clock)
    assert (home / "workspace" / "memory" / "sailing.md").read_text().endswith("- day 6\n")
    async with running(home, clock=clock) as engine:
        await engine.say("hello again")
        await engine.channel.wait_until(lambda _: "You said: hello again" in engine.sent_to("ada"))
        await until(lambda: kept_in(home).keys() >= transcripts.keys())
    for name, data in transcripts.items():
        assert kept_in(home)[name].startswith(data)
    assert len(list(target.iterdir())) <= 4


def kept_in(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "sessions").rglob("*.jsonl")}


async def test_the_program_makes_them_by_itself_and_a_stop_leaves_nothing(
    tmp_path, talked, monkeypatch
):
    monkeypatch.setattr(schedule, "FIRST_SECONDS", 0)
    home, target = tmp_path / "home", tmp_path / "usb"
    target.mkdir()
    async with running(home, backup={"folder": target}) as engine:
        await engine.ask("hello")
        await until(lambda: len(list(target.glob("confidant-*.backup"))) == 1)
        registry = engine.app.core.metrics.registry
        await until(lambda: registry.get_sample_value("confidant_backup_test_age_seconds") == 0)
    for each in target.iterdir():
        each.unlink()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    original = making.pack

    def slow(*arguments: Any, advance: Any, **more: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        while True:
            advance(0)

    monkeypatch.setattr(making, "pack", slow)
    monkeypatch.setattr("bot.scheduler.STOP_GRACE", 0.05)
    clock = FakeClock()
    clock.advance(days=3)
    async with running(home, clock=clock, backup={"folder": target}):
        await begun.wait()
    monkeypatch.setattr(making, "pack", original)
    assert list(target.iterdir()) == []
    async with running(home, clock=clock, backup={"folder": target}):
        await until(lambda: len(list(target.glob("confidant-*.backup"))) == 1)


async def test_who_asks_whether_all_is_well_hears_of_one_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.housekeeping.FRESH", 0.0)

    async def told(engine: Engine) -> dict[str, str]:
        assert engine.app.address is not None
        url = engine.app.address.url.split("?")[0].rstrip("/")
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
            assert response.status == 200
            return (await response.json())["checks"]["backups"]

    target = tmp_path / "usb"
    async with running(tmp_path / "home", serves=True, backup={"folder": target}) as engine:
        assert (await told(engine))["state"] == "ok"  # none was due yet
        async with beside(tmp_path / "home") as database:
            config, _ = make_config(tmp_path / "home", backup={"folder": target})
            await Backups(
                *(config, database, OneAtATime(), engine.clock), metrics=Metrics(), settings=str
            ).look()
        found = await told(engine)
        assert found["state"] == "degraded"
        assert "failed" in found["detail"]
        assert str(target) not in found["detail"]


async def test_work_in_a_thread_ends_with_its_task():
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: list[str] = []

    def work(advance: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                advance(1)
        except Stopped:
            ended.append("stopped")
            raise

    task = asyncio.create_task(in_thread(work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["stopped"]


MOMENTS = st.sets(st.integers(0, 20 * WEEK), max_size=40)


@given(made=MOMENTS, now=st.integers(0, 20 * WEEK), kept=st.integers(1, 9), weeks=st.integers(0, 9))
def test_the_newest_and_one_of_each_week_outlive_the_rest(
    made: set[int], now: int, kept: int, weeks: int
):
    gone = schedule.outlived(made, now, kept, weeks)
    past = {each for each in made if each <= now}
    assert gone <= past
    staying = past - gone
    assert set(sorted(past)[-kept:]) <= staying
    assert len(staying) <= kept + weeks
    last = sorted({each // WEEK for each in past})[-weeks:] if weeks else []
    for week in last:
        assert max(each for each in past if each // WEEK == week) in staying
    assert schedule.outlived(made - gone, now, kept, weeks) == set()


def test_a_name_tells_whose_it_is_and_when_it_was_made(tmp_path):
    clock = FakeClock()
    for name in (
        schedule.name_of("a1", clock()),
        schedule.name_of("a1", clock() - 1000),
        schedule.name_of("b2", clock()),
        "confidant-a1-20261399-000000.backup",
        "confidant-a1-20261121-120000.backup.gz",
        ".confidant-a1-20261121-120000.backup",
    ):
        (tmp_path / name).touch()
    assert schedule.found(tmp_path, "a1") == {
        clock(): tmp_path / schedule.name_of("a1", clock()),
        clock() - 1000: tmp_path / schedule.name_of("a1", clock() - 1000),
    }
