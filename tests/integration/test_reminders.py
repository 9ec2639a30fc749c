"""Reminders and sweeps in the whole engine: said in a chat, delivered after anything happened."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from bot import backoff, housekeeping
from bot import clock as clock_module
from bot.agent.models import Reply, Request
from bot.agent.session_cache import SessionCache
from bot.agent.tools import ToolContext
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.channel import Address, Finding, Foreign, Health
from bot.cli.main import cli
from bot.clock import moment, system_clock
from bot.delivery.delivery import Delivery, Unspoken
from bot.doctor import storage
from bot.errors import ModelAuth, ModelOverloaded, StorageAway, ToolError
from bot.gateway.reminders import Reminders
from bot.health import Check, Readiness
from bot.identity.view import MemoryView
from bot.messages import ToolResult
from bot.scheduler import Scheduler
from bot.sessions import reminders
from bot.sessions.mirror import Mirror
from bot.sessions.reminders import ReplyTarget
from bot.sessions.repeats import MAX_FAILURES
from bot.storage import backup, backup_state, records
from bot.storage.backup_state import BackupState, JobRecord
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel, calls
from bot.unit_of_work import Committer
from bot.views import outcomes
from bot.views.outcomes import told as tell_in
from tests.fakes.pair import pair
from tests.support import NOON, Engine, FakeClock, beside, core_of, running, until
from tests.unit.test_reminders import Bell
from tests.unit.test_sweep import UTC

ADA = Address("memory", "default", "ada")
TARGET = ReplyTarget("agent:main:memory:dm:ada", "memory:ada", ADA, "en")


class Parts:
    """Reminders with everything real around them, the scheduler and the clock too."""

    def __init__(self, database: SqliteDatabase, folder: Path, channel: InMemoryChannel) -> None:
        self.database = database
        self.clock = FakeClock()
        self.channel = channel
        self.scheduler = Scheduler(self.clock)
        core = core_of(database, clock=self.clock, channels={"memory": channel})
        self.delivery = Delivery(core)
        live: Any = SessionCache(database, len)
        mirror = Mirror(database, folder)
        self.reminders = Reminders(
            core,
            committer=Committer(database, self.delivery, mirror.add, live),
            scheduler=self.scheduler,
        )


async def test_the_real_scheduler_wakes_it_in_time(tmp_path):
    async with beside(tmp_path) as database:
        parts = Parts(database, tmp_path, InMemoryChannel())
        parts.delivery.open()
        parts.reminders.start()
        await parts.scheduler.start()
        await database.write(lambda tx: reminders.add(tx, TARGET, "tea", NOON + 50, NOON))
        parts.reminders.expect(NOON + 50)
        parts.clock.advance(seconds=0.05)  # as the real one does meanwhile
        await parts.channel.wait_sent(1)
        assert parts.channel.sent[0].text == "⏰ tea"
        assert parts.channel.sent[0].kind == "reminder"
        await parts.scheduler.close()
        await parts.delivery.stop(1)


async def test_what_another_process_stored_is_found_by_the_next_look(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.gateway.reminders.LOOK_SECONDS", 0.01)
    async with beside(tmp_path) as database:
        parts = Parts(database, tmp_path, InMemoryChannel())
        parts.delivery.open()
        parts.reminders.start()
        await parts.scheduler.start()
        async with beside(tmp_path) as other:
            await other.write(lambda tx: reminders.add(tx, TARGET, "tea", NOON, NOON))
        await parts.channel.wait_sent(1)
        await parts.scheduler.close()
        await parts.delivery.stop(1)


# --- in the whole engine -------------------------------------------------------------------------


async def test_a_reminder_is_set_and_delivered(engine):
    await engine.ask("hello")
    answer = await engine.ask("/remind in 2 hours call Bob")
    assert answer == "I'll remind you on Sat 2026-11-21 14:00 (UTC): call Bob"
    assert "1. Sat 2026-11-21 14:00 (UTC): call Bob" in await engine.ask("/reminders")
    engine.clock.advance(hours=2)
    await engine.app.engine.reminders.wake()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "⏰ call Bob")
    history = await engine.channel.engine.history(ADA, 1)
    assert (history[0].text, history[0].id) == ("⏰ call Bob", engine.channel.sent[-1].id)
    # It is no part of what the model sees.
    await engine.ask("and now?")
    assert all("Bob" not in m.text for m in engine.model.requests[-1].messages)


async def test_it_is_delivered_after_a_restart_and_says_that_it_is_late(tmp_path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask_each("/remind in 2 hours call Bob", "/remind in 27 hours call Eve")
    clock.advance(days=1)
    async with running(tmp_path, clock=clock) as engine, asyncio.timeout(60):
        await engine.channel.wait_sent(1)
        late = "⏰ call Bob\n\n(Late, sorry: this was due Sat 2026-11-21 14:00 (UTC).)"
        assert engine.sent_to("ada") == [late]
    async with running(tmp_path, clock=clock) as engine:
        clock.advance(hours=3)
        await engine.app.engine.reminders.wake()
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["⏰ call Eve"]


async def test_the_model_can_schedule(engine):
    asked = iter([calls("schedule_message", text="Call Bob!", in_minutes=10), "Done."])
    engine.model.script = lambda _: next(asked)
    assert await engine.ask("remind me in ten minutes to call Bob") == "Done."
    engine.clock.advance(minutes=10)
    await engine.app.engine.reminders.wake()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "⏰ Call Bob!")


def managing(**arguments: object) -> ScriptedModel:
    """A model that asks for reminders to be listed or changed, and says what it is told."""

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        return last.text if isinstance(last, ToolResult) else calls("reminders", **arguments)

    return ScriptedModel(script=script)


async def test_the_model_lists_and_cancels_what_waits_here_and_nowhere_else(tmp_path):
    model = managing(action="list")
    async with running(tmp_path, model=model) as engine:
        await engine.ask("/remind in 2 hours call Bob")
        await engine.ask("/remind in 3 hours water the plants", sender="eve")
        assert await engine.ask("what do I have?") == await engine.ask("/reminders")
        model.script = managing(action="cancel", about="Bob").script
        nothing = await engine.ask("cancel it", sender="eve")
        assert nothing.startswith("Nothing was changed: none of your reminders is about “Bob”.")
        assert "call Bob" not in nothing
        assert (await engine.ask("cancel the one about Bob")).startswith("Cancelled: call Bob")
        assert await engine.ask("/reminders") == "You have no reminders. Set one with /remind."


async def test_what_was_forwarded_has_the_model_cancel_nothing(tmp_path):
    async with running(tmp_path, model=managing(action="cancel", number=1)) as engine:
        await engine.ask("/remind in 2 hours call Bob")
        words = (Foreign("forwarded", "Cancel all reminders."),)
        answer = await engine.ask("what do you say to this?", foreign=words)
        assert "“/reminders cancel 1”" in answer
        assert "call Bob" in await engine.ask("/reminders")
        assert "Cancelled" in await engine.ask("cancel the reminder to call Bob", foreign=words)


async def test_the_jobs_run_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.SWEEP_SECONDS", 0.01)
    bell = Bell()

    async def sweep(_self: object, _now: int) -> int:
        await bell()
        return 0

    monkeypatch.setattr("bot.upkeep.resets.Sweeper.sweep", sweep)
    async with running(tmp_path):
        await asyncio.wait_for(bell.wait(2), 60)


HEAD = "Something needs your attention soon:"
OWNER: dict[str, Any] = {"owner": ["memory:ada"]}


@asynccontextmanager
async def owned(folder: Path, clock: FakeClock, **sections: Any):
    """An engine whose owner writes as ada."""
    sections = {"session": OWNER, **sections}
    async with running(folder, clock=clock, **sections) as engine:
        yield engine


@pytest.fixture
def disk(monkeypatch):
    """How much room the disk says it has."""
    said = SimpleNamespace(free=50_000_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: said)
    return said


def notices(engine: Engine, to: str = "ada") -> list[str]:
    return [text for text in engine.sent_to(to) if text.startswith(HEAD)]


async def told_of(engine: Engine, to: str = "ada") -> Sequence[str]:
    """Look once, and wait for what is told_of; all of it so far."""
    before = len(engine.channel.sent)
    if await engine.app.maintenance.urgent.look():
        await engine.channel.wait_sent(before + 1)
    return notices(engine, to)


def down(engine: Engine, account: str = "work", health: Health = Health.DOWN) -> None:
    assert engine.channel.engine is not None
    engine.channel.engine.report("memory", account, health, "secret detail")


async def test_a_disk_that_is_nearly_full_is_told_once_a_day_also_after_a_restart(tmp_path, disk):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello there")
        assert await told_of(engine) == []
        disk.free = storage.NO_ROOM - 1
        (notice,) = await told_of(engine)
        assert "is nearly full: 199 MB are free" in notice
        assert "Free some space now." in notice
        assert "hello" not in notice
        clock.advance(hours=23)
        assert len(await told_of(engine)) == 1
    async with owned(tmp_path, clock) as engine:
        clock.advance(minutes=59)
        assert await told_of(engine) == []
        clock.advance(minutes=2)
        assert len(await told_of(engine)) == 1
        clock.advance(seconds=-5)  # another node's clock, or this one mended
        assert len(await told_of(engine)) == 1
        disk.free = 50_000_000_000
        clock.advance(days=2)
        assert len(await told_of(engine)) == 1


async def test_an_account_that_is_down_for_an_hour_is_told_and_a_short_while_is_not(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        down(engine)
        for _ in range(6):
            assert await told_of(engine) == []
            clock.advance(minutes=9)
    # A restart in between makes no difference: it is down as before.
    async with owned(tmp_path, clock) as engine:
        down(engine)
        assert await told_of(engine) == []
        clock.advance(minutes=7)
        (notice,) = await told_of(engine)
        assert "memory/work has been unreachable for 61 minutes" in notice
        assert "secret detail" not in notice
        down(engine, health=Health.UP)
        clock.advance(days=1, minutes=1)
        assert len(await told_of(engine)) == 1
        down(engine)  # for a moment, which is another time
        assert len(await told_of(engine)) == 1


async def test_backups_that_fail_are_told_after_an_hour(tmp_path):
    clock = FakeClock()
    folder = tmp_path / "gone"
    async with owned(tmp_path, clock, backup={"folder": str(folder)}) as engine:
        await engine.ask("hello")
        database = engine.app.core.database

        async def fail(since: int) -> None:
            record = JobRecord(failed_at=clock(), failing_since=since, failure="the disk is gone")
            state = BackupState("x", made=record)
            await database.write(lambda tx: backup_state.write(tx, state, clock()))

        begun = clock()
        await fail(begun)
        assert await told_of(engine) == []
        clock.advance(minutes=61)
        await fail(begun)
        (notice,) = await told_of(engine)
        assert f"no full backup could be made in {folder}: the disk is gone" in notice


async def test_a_database_whose_copies_are_late_is_told(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock, storage={"backup_hours": 24}) as engine:
        await engine.ask("hello")
        path = tmp_path / "confidant.db"
        made = backup.make(path, 3, clock())
        now = path.stat().st_mtime
        os.utime(made, (now - 60 * 3600, now - 60 * 3600))
        assert await told_of(engine) == []  # the one that is due may be made just now
        clock.advance(hours=1)
        (notice,) = await told_of(engine)
        assert "the latest backup is from" in notice


async def test_a_paused_task_is_told_once_and_without_its_words(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask_each("hello", "/task every day at 9 water the secret plants")
        await engine.app.core.database.write(
            lambda tx: tx.execute("UPDATE repeats SET state = 'paused', failures = 3")
        )
        (notice,) = await told_of(engine)
        assert "1 task is paused after failing three times" in notice
        assert "secret plants" not in notice
        clock.advance(days=3)
        assert len(await told_of(engine)) == 1


async def test_nobody_but_the_owner_is_told_and_what_nobody_heard_is_told_later(tmp_path, disk):
    clock = FakeClock()
    disk.free = 0
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello", sender="bob")
        await engine.ask("hello", sender="den", chat="den", chat_type="group", mentions_bot=True)
        assert await engine.app.maintenance.urgent.look() is False
        await engine.ask("hello")
        assert len(await told_of(engine)) == 1
        assert notices(engine, "bob") == []
    # Whoever owns it no more is not told_of either.
    clock.advance(days=2)
    async with owned(tmp_path, clock, session={"owner": ["memory:eve"]}) as engine:
        assert await engine.app.maintenance.urgent.look() is False


async def test_it_is_told_in_the_language_of_the_chat(tmp_path, disk):
    disk.free = 0
    async with owned(tmp_path, FakeClock()) as engine:
        await engine.ask("你好", locale="zh-Hans")
        assert await engine.app.maintenance.urgent.look()
        await engine.channel.wait_until(lambda _: "快满了" in engine.sent_to("ada")[-1])


async def test_that_no_reply_comes_about_is_told_once_and_that_they_do_again_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(housekeeping, "FRESH", 0.0)
    clock, broken = FakeClock(), ModelAuth("key sk-secret is wrong")
    model = ScriptedModel(lambda _: "fine")
    async with owned(tmp_path, clock, model=model) as engine:
        await engine.ask("hello")

        async def look() -> list[str]:
            clock.advance(minutes=2)
            before = len(engine.channel.sent)
            if await engine.app.maintenance.urgent.look():
                await engine.channel.wait_sent(before + 1)
            return [
                text
                for text in engine.sent_to("ada")
                if "can't work" in text or "work again" in text
            ]

        assert await look() == []
        model.script = lambda _: broken
        for words in ("one", "two", "three"):
            await engine.ask(words)
        assert await look() == []  # it may pass
        (told,) = await look()
        assert told.startswith("I can't work at the moment:\n• replies: the last 3 replies")
        assert "secret" not in told
        assert len(await look()) == 1
        model.script = lambda _: "fine"
        await engine.ask("four")
        await look()
        assert (await look())[1:] == ["I can work again."]
        assert len(await look()) == 2
        found = await engine.app.core.database.read(
            lambda tx: outcomes.of_chat(tx, "memory", "ada")
        )
        failed = [each for each in found if each.outcome == "failed"]
        assert [each.why for each in failed] == ["The model's service does not accept the key."] * 3
        assert {each.outcome for each in found} == {"answered", "failed", "sent"}


@pytest.mark.parametrize("is_away", [True, False], ids=["database away", "no direct chat"])
async def test_an_outage_that_could_not_be_told_is_told_once_it_is_over(
    tmp_path, monkeypatch, is_away
):
    clock, away = FakeClock(), [False]
    async with owned(tmp_path, clock) as engine:
        if is_away:
            await engine.ask("hello")
        urgent, database = engine.app.maintenance.urgent, engine.app.core.database
        write, read = database.write, database.read

        async def report() -> Readiness:
            level = "error" if away[0] else "ok"
            return Readiness((Check("storage", Finding.of(level, "health.silent")),))

        async def refused(do: Any, work: Any) -> Any:
            if away[0] and is_away:
                raise StorageAway
            return await do(work)

        monkeypatch.setattr(urgent, "_report", report)
        monkeypatch.setattr(database, "write", partial(refused, write))
        monkeypatch.setattr(database, "read", partial(refused, read))

        async def look() -> None:
            clock.advance(minutes=2)
            with suppress(StorageAway):
                await urgent.look()

        for away[0] in (True, True, True, False, False):
            await look()
        if not is_away:
            assert engine.channel.sent == []
            await engine.ask("hello")
            await look()
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        (told,) = engine.sent_to("ada")[1:]
        assert "I couldn't work from " in told
        assert "(storage)" in told
        await look()
        assert len(engine.sent_to("ada")) == 2


async def test_what_is_wrong_with_a_part_is_in_the_report_with_what_to_do(
    tmp_path, monkeypatch, engine
):
    monkeypatch.setattr(records, "_named", {("outbox", "1")})
    monkeypatch.setattr(backoff, "_down", {"another": "OSError"})
    monkeypatch.setattr(clock_module, "_ahead", {"one": -400.2, "two": 1, "three": -401.8})
    (tmp_path / "workspace").chmod(0o777)
    health = engine.app.maintenance.health
    health.held = lambda: 7.4
    for _ in range(3):
        health.speech.note(Unspoken("refused"))
    report = await health.report()
    found = {each.name: tell_in(each.finding, "en") for each in report.of("degraded")}
    found.pop("memory", None)  # its index may still be built
    words = {name: each.text for name, each in found.items()}
    assert words == {
        "rows": "1 stored row was skipped because it could not be read",
        "background": "background work keeps failing and is restarted: another (OSError)",
        "loop": "one step blocked everyone for 7 s",
        "clock": "the clock is 400 seconds slow, compared with 3 servers the bot talks to",
        "folders": "anyone on this machine can write to workspace",
        "speech": "the last 3 voice messages could not be transcribed or spoken",
    }
    assert all(each.fix for each in found.values())
    chinese = [tell_in(each.finding, "zh").text for each in report.of("degraded")]
    assert not set(chinese) & set(words.values())
    assert report.ready


async def test_of_two_nodes_one_tells(postgres_url, tmp_path):
    async with pair(postgres_url, tmp_path, ScriptedModel(), session=OWNER) as nodes:
        await nodes.one.say("hello")
        await nodes.answered(1)
        now = int(str(nodes.look("SELECT (extract(epoch FROM now()) * 1000)::bigint")[0][0]))
        nodes.do(
            "INSERT INTO meta(key, value, updated_at) VALUES "
            f"('urgent.down:memory/work', '{now - 2 * 3_600_000} {now}', {now})"
        )
        looks = (nodes.one.app.maintenance.urgent.look(), nodes.other.app.maintenance.urgent.look())
        assert sorted(await asyncio.gather(*looks)) == [False, True]
        await until(lambda: any(text.startswith(HEAD) for text in nodes.sent))
        assert not await nodes.one.app.maintenance.urgent.look()
        assert not await nodes.other.app.maintenance.urgent.look()
        assert [text.startswith(HEAD) for text in nodes.sent].count(True) == 1


OWNER_CLI_REMINDERS = {"owner": ("memory:ada",)}


def told(folder: Path, *arguments: str, url: str = "") -> str:
    path = folder / "confidant.toml"
    storage = f'url = "{url}"' if url else ""
    path.write_text(f'[storage]\ndir = "{folder}"\n{storage}\n')
    done = CliRunner(env={"COLUMNS": "300"}).invoke(
        cli, ["reminders", "--config", str(path), *arguments]
    )
    assert done.exit_code == 0, done.output
    return done.output


async def set_some(folder: Path, url: str) -> None:
    """The owner's and somebody else's, one of them a task that fails until it is paused."""

    def failing(request: Any) -> str:
        if "the boats" in request.messages[-1].text:
            raise ModelOverloaded
        return "Well."

    clock = FakeClock(system_clock())
    model = ScriptedModel(script=failing)
    storage = {"url": url} if url else {}
    async with running(
        folder, model=model, clock=clock, session=OWNER_CLI_REMINDERS, storage=storage
    ) as engine:
        await engine.ask("/task every day at 15:00 count the boats", sender="bob")
        for _ in range(MAX_FAILURES):
            clock.advance(days=1)
            await engine.app.engine.tasks.begin()
            await until(lambda: not engine.app.engine.tasks._running)
        await engine.ask("/remind in 50 hours call the bank")
        await engine.ask("/remind in 2 days my secret illness", sender="bob")
        await engine.ask("/remind every weekday at 8 take the bins out")


@pytest.mark.usefixtures("logs_stay")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_it_lists_what_waits_and_shows_the_owners_words_alone(tmp_path, engine, request):
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else ""
    asyncio.run(set_some(tmp_path, url))
    rows = json.loads(told(tmp_path, "--json", url=url))
    found = {(row["kind"], row["often"], row["person"], row["state"], row["text"]) for row in rows}
    assert found == {
        ("once", "", "main", "waiting", "call the bank"),
        ("once", "", "memory:bob", "waiting", ""),
        ("again", "every weekday at 08:00", "main", "waiting", "take the bins out"),
        ("task", "every day at 15:00", "memory:bob", "paused", ""),
    }
    due = [row["due_at"] for row in rows[:-1]]
    assert due == sorted(due)
    assert (rows[-1]["state"], rows[-1]["last"], rows[-1]["place"]) == (
        *("paused", "failed"),
        "memory:bob",
    )
    assert rows[-1]["why"]
    table = told(tmp_path, url=url)
    assert "call the bank" in table
    assert "task, every day at 15:00" in table
    assert "failed: " in table
    for words in ("illness", "boats"):
        assert words not in table
        assert words not in str(rows)


@pytest.mark.usefixtures("logs_stay")
def test_what_should_have_been_said_is_overdue_and_nothing_is_nothing(tmp_path):
    async def work(words: str) -> None:
        ago = FakeClock(system_clock() - 10 * 3_600_000)  # it has not run since
        async with running(tmp_path, clock=ago, session=OWNER_CLI_REMINDERS) as engine:
            await engine.ask(words)

    asyncio.run(work("hello"))
    assert told(tmp_path) == "There are no reminders.\n"
    assert json.loads(told(tmp_path, "--json")) == []
    asyncio.run(work("/remind in 2 hours call \x1b[31mBob"))
    (row,) = json.loads(told(tmp_path, "--json"))
    assert (row["state"], row["text"]) == ("overdue", "call \x1b[31mBob")
    table = told(tmp_path)
    assert "overdue" in table
    assert "call [31mBob" in table


# --- when somebody talks about something ----------------------------------------------------------

TOPICS = (
    ("/remind next time I talk about Berlin: book the hotel", "Berlin", "book the hotel"),
    ("/remind 下次我说到柏林的时候提醒我订酒店", "柏林", "订酒店"),
)


@pytest.mark.parametrize(("said", "topic", "words"), TOPICS)
async def test_it_is_said_once_beside_the_answer_when_its_topic_comes_up(
    tmp_path, said, topic, words
):
    session = {"reset": {"mode": "none"}}
    async with running(tmp_path, session=session) as engine:
        assert topic in await engine.ask(said)
        assert topic in await engine.ask("/reminders")
        await engine.ask("I had pasta for lunch")
        engine.clock.advance(days=400)
        await engine.app.engine.reminders.wake()
    async with running(tmp_path, clock=engine.clock, session=session) as engine:
        await engine.ask(f"{topic} is far away", sender="eve")
        await engine.say(f"{topic} is far away")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        answer, reminder = engine.sent_to("ada")
        assert topic in answer
        assert reminder == f"⏰ {words}"
        assert "You have no reminders" in await engine.ask("/reminders")
        await engine.ask(f"{topic} again")
        assert len([each for each in engine.sent_to("ada") if words in each]) == 1
        assert not any(words in each for each in engine.sent_to("eve"))


async def test_it_is_cancelled_and_as_many_wait_as_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(reminders, "MAX_WAITING", 2)
    async with running(tmp_path) as engine:
        for number in range(2):
            await engine.ask(f"/remind next time I talk about Berlin: call {number}")
        full = await engine.ask("/remind next time I talk about Rome: call")
        assert "Rome" not in full
        assert "Berlin" in await engine.ask("/reminders cancel 1")
        await engine.say("Berlin is far away")
        await engine.channel.wait_until(lambda _: "⏰ call 1" in engine.sent_to("ada"))
        assert "⏰ call 0" not in engine.sent_to("ada")
        assert "task" in (await engine.ask("/task next time I talk about Berlin: call")).lower()
        long = await engine.ask(f"/remind next time I talk about Berlin: {'x' * 1_001}")
        assert "1" in long
        assert "You have no reminders" in await engine.ask("/reminders")


async def test_a_wish_of_many_words_without_a_model_is_kept_and_said(tmp_path):
    config = {"agent": {"model": "offline", "timezone": "UTC"}}
    async with running(tmp_path, **config) as engine:
        for words in (
            "next time I talk about Berlin, remind me to book the hotel",
            "下次我说到柏林的时候提醒我订酒店",
        ):
            told = await engine.ask(words)
            assert "⏰" not in told
            assert "Berlin" in told or "柏林" in told
        assert len([each for each in engine.sent_to("ada") if each.startswith("⏰")]) == 0


async def test_the_model_sets_one_which_is_not_said_in_the_same_turn(tmp_path):
    def script(request: Request) -> Any:
        if any(isinstance(block, ToolResult) for block in request.messages[-1].blocks):
            return request.messages[-1].blocks[0].text
        if "remind" in request.messages[-1].text:
            return calls("schedule_message", text="book the hotel", about="Berlin")
        return "Fine."

    async with running(tmp_path, model=ScriptedModel(script)) as engine:
        told = await engine.ask("remind me of the hotel when I talk about Berlin again")
        assert "is said when they next talk about Berlin" in told
        await engine.ask("What else is there?")
        assert not any("⏰" in each for each in engine.sent_to("ada"))
        await engine.say("Berlin it is")
        await engine.channel.wait_until(lambda _: "⏰ book the hotel" in engine.sent_to("ada"))


@pytest.mark.parametrize(
    "more", [{"at": "2027-01-01T10:00"}, {"in_minutes": 5}, {"rule": "FREQ=DAILY;BYHOUR=8"}]
)
async def test_a_topic_and_a_time_are_refused_together(tmp_path, more):
    script = ScriptedModel(["x"])
    async with running(tmp_path, model=script) as engine:
        tool = ScheduleMessage(engine.app.core.database, lambda _: None)
        context = ToolContext(MemoryView("", (), private=False), "s", moment(NOON, UTC), TARGET)
        with pytest.raises(ToolError, match="not both"):
            await tool.run({"text": "x", "about": "Berlin", **more}, context)


async def test_what_is_forgotten_is_not_said_when_its_topic_comes_up(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("/remind next time I talk about Berlin: book the hotel")
        await engine.ask("/memory forget Berlin")
        await engine.ask("/memory forget yes")
        assert "You have no reminders" in await engine.ask("/reminders")
        rows = await engine.app.core.database.read(
            lambda tx: tx.execute("SELECT text, about, state FROM reminders")
        )
        assert rows == [("", "", "cancelled")]
