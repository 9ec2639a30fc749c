"""Reminders and sweeps in the whole engine: said in a chat, delivered after anything happened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bot.agent.session_cache import SessionCache
from bot.channel import Address
from bot.config import Config
from bot.coordination import Alone
from bot.delivery.delivery import Delivery
from bot.gateway.reminders import Reminders
from bot.identity import ConversationResolver, Policy
from bot.metrics import Metrics
from bot.scheduler import Scheduler
from bot.sessions import reminders
from bot.sessions.mirror import Mirror
from bot.sessions.reminders import ReplyTarget
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel, calls
from bot.unit_of_work import Committer
from tests.support import NOON, FakeClock, running
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
        self.delivery = Delivery(
            database, {"memory": channel}, self.clock, Metrics(), coordination=Alone(database)
        )
        live: Any = SessionCache(database, len)
        mirror = Mirror(database, folder)
        self.reminders = Reminders(
            resolver=ConversationResolver(Policy.of(Config(), UTC)),
            database=database,
            committer=Committer(database, self.delivery, mirror.add, live),
            scheduler=self.scheduler,
            clock=self.clock,
        )


async def test_the_real_scheduler_wakes_it_in_time(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    parts = Parts(database, tmp_path, InMemoryChannel())
    parts.delivery.open()
    parts.reminders.start()
    await parts.scheduler.start()
    assert await parts.reminders.schedule(TARGET, "tea", NOON + 50)
    parts.clock.advance(seconds=0.05)  # as the real one does meanwhile
    await parts.channel.wait_sent(1)
    assert parts.channel.sent[0].text == "⏰ tea"
    assert parts.channel.sent[0].kind == "reminder"
    await parts.scheduler.close()
    await parts.delivery.stop(1)
    await database.close()


async def test_what_another_process_stored_is_found_by_the_next_look(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.gateway.reminders.LOOK_SECONDS", 0.01)
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    parts = Parts(database, tmp_path, InMemoryChannel())
    parts.delivery.open()
    parts.reminders.start()
    await parts.scheduler.start()
    other = await SqliteDatabase.open(tmp_path / "confidant.db")
    await other.write(lambda tx: reminders.add(tx, TARGET, "tea", NOON, NOON))
    await other.close()
    await parts.channel.wait_sent(1)
    await parts.scheduler.close()
    await parts.delivery.stop(1)
    await database.close()


async def test_a_crash_before_the_sending_is_followed_by_one_sending(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    channel = InMemoryChannel()
    parts = Parts(database, tmp_path, channel)
    await parts.reminders.schedule(TARGET, "tea", NOON + 1)
    await parts.reminders.fire(NOON + 1)  # delivery is not open: the program ends before it sends
    await parts.delivery.stop(0)
    assert channel.sent == []
    again = Parts(database, tmp_path, channel)
    await again.reminders.fire(NOON + 2)
    await again.delivery.look()
    again.delivery.open()
    await channel.wait_sent(1)
    await again.reminders.fire(NOON + 3)
    await again.delivery.stop(1)
    assert [piece.text for piece in channel.sent] == ["⏰ tea"]
    await database.close()


async def test_a_reminder_for_a_channel_that_is_gone_is_parked(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    parts = Parts(database, tmp_path, InMemoryChannel())
    parts.delivery.open()
    gone = ReplyTarget(TARGET.key, TARGET.person, Address("pigeon", "default", "ada"), "en")
    await parts.reminders.schedule(gone, "tea", NOON)
    assert await parts.reminders.fire(NOON) == 1
    await parts.delivery.stop(1)
    rows = await database.read(lambda tx: tx.execute("SELECT state FROM outbox"))
    assert rows == [("parked",)]
    await database.close()


# --- in the whole engine -------------------------------------------------------------------------


async def test_a_reminder_is_set_and_delivered(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        answer = await engine.ask("/remind in 2 hours call Bob")
        assert answer == "I will remind you on Sat 2026-11-21 14:00 (UTC): call Bob"
        assert "1. Sat 2026-11-21 14:00 (UTC): call Bob" in await engine.ask("/reminders")
        engine.clock.advance(hours=2)
        await engine.app.reminders.wake()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "⏰ call Bob")
        history = await engine.channel.engine.history(ADA, 1)
        assert (history[0].text, history[0].id) == ("⏰ call Bob", engine.channel.sent[-1].id)
        # It is no part of what the model sees.
        await engine.ask("and now?")
        assert all("Bob" not in m.text for m in engine.model.requests[-1].messages)


async def test_it_is_delivered_after_a_restart_and_says_that_it_is_late(tmp_path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("/remind in 2 hours call Bob")
        await engine.ask("/remind in 27 hours call Eve")
    clock.advance(days=1)
    async with running(tmp_path, clock=clock) as engine, asyncio.timeout(60):
        await engine.channel.wait_sent(1)
        late = "⏰ call Bob\n\n(Late, sorry: this was due Sat 2026-11-21 14:00 (UTC).)"
        assert engine.sent_to("ada") == [late]
    async with running(tmp_path, clock=clock) as engine:
        clock.advance(hours=3)
        await engine.app.reminders.wake()
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["⏰ call Eve"]


async def test_the_model_can_schedule(tmp_path):
    asked = iter([calls("schedule_message", text="Call Bob!", in_minutes=10), "Done."])
    model = ScriptedModel(script=lambda _: next(asked))
    async with running(tmp_path, model=model) as engine:
        assert await engine.ask("remind me in ten minutes to call Bob") == "Done."
        engine.clock.advance(minutes=10)
        await engine.app.reminders.wake()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "⏰ Call Bob!")


async def test_overnight_the_conversation_is_closed_and_the_next_message_begins_another(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        engine.clock.advance(hours=16)
        assert await engine.app.sweeper.sweep(engine.clock()) == 1
        assert await engine.app.sweeper.sweep(engine.clock()) == 0
        assert "A new day" in await engine.ask("good morning")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 3)
        assert "Back in the conversation" in await engine.ask("/undo")
        await engine.ask("again")
        said = [m.text for m in engine.model.requests[-1].messages]
        assert said == ["hello", "You said: hello", "again"]


async def test_a_command_in_the_morning_does_not_keep_the_old_conversation(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        engine.clock.advance(hours=16)
        await engine.ask("/status")
        engine.clock.advance(minutes=5)
        assert "A new day" in await engine.ask("good morning")


async def test_the_jobs_run_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.SWEEP_SECONDS", 0.01)
    bell = Bell()

    async def sweep(_self: object, _now: int) -> int:
        await bell()
        return 0

    monkeypatch.setattr("bot.upkeep.resets.Sweeper.sweep", sweep)
    async with running(tmp_path):
        async with asyncio.timeout(60):
            await bell.wait(2)
