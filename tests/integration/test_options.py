"""What options do that no other test changes, over the parts they are for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from adapters import nextcloud_talk, telegram
from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.telegram.channel import Telegram
from bot import housekeeping, settings
from bot.agent.models import Reply, Request, TextDelta
from bot.app import App
from bot.channel.http import HttpServer
from bot.config import EmbedderConfig, StorageConfig
from bot.errors import EmbedderError
from bot.memory.embed.remote import RemoteEmbedder
from bot.memory.memory import INDEX_FOLDER
from bot.memory.search import Findings
from bot.storage import backup
from bot.storage.sqlite import SqliteDatabase
from bot.testing import HashEmbedder, RecordingEngine, ScriptedModel, calls
from tests.fakes import embeddings_api, telegram_channel
from tests.fakes.brain import Brain, current, writing
from tests.fakes.memory_search import WordSearcher
from tests.fakes.telegram import FakeTelegram
from tests.integration.test_context_engine import (
    BOAT,
    SAVED,
    ask,
    begun,
    boats,
    command,
    reaching,
    reading,
    talk,
    words_of,
)
from tests.integration.test_memory_index import MAIN, index_of, note, paths
from tests.support import FakeClock, running, until

__all__ = ["note"]

LATE = 1.0  # seconds: after what is configured, and before every default


async def soon(ready: Callable[[], bool]) -> None:
    """Wait some seconds for something that has no event of its own."""
    for _ in range(500):
        if ready():
            return
        await asyncio.sleep(0.01)


@dataclass
class Together(ScriptedModel):
    """A model that waits a moment for others to be asked too, and counts them."""

    now: int = 0
    most: int = 0
    wanted: int = 2
    seconds: float = 0.5

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async with asyncio.timeout(self.seconds):
                await until(lambda: self.most >= self.wanted)
        except TimeoutError:
            pass
        async for event in super().stream(request):
            yield event
        self.now -= 1


@pytest.mark.parametrize(("options", "most"), [({}, 2), ({"max_turns": 1}, 1)])
async def test_no_more_turns_run_at_once_than_configured(tmp_path, options, most):
    model = Together()
    async with running(tmp_path, model=model, session=options) as engine:
        await asyncio.gather(*(engine.ask("hi", sender=who) for who in ("ada", "bob")))
    assert model.most == most


async def test_a_turn_that_takes_longer_than_configured_is_ended(tmp_path):
    agent = {"timezone": "UTC", "turn_timeout": 0.05}
    async with running(tmp_path, model=Together(seconds=5), agent=agent) as engine:
        assert "took too long" in await engine.ask("hi")


async def test_only_as_many_backups_are_kept_as_configured(tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "FIRST_BACKUP_SECONDS", 0)
    path, clock = tmp_path / "confidant.db", FakeClock()
    database = await SqliteDatabase.open(path)
    for _ in range(3):
        os.utime(backup.make(path, 1_000, clock()), (0, 0))
        clock.advance(days=1)
    last = backup.newest_first(path, clock())[0]
    config = StorageConfig(backups_kept=2)
    task = asyncio.create_task(housekeeping.keep_copies(config, database, clock))
    async with asyncio.timeout(30):
        await until(lambda: backup.newest_first(path, clock())[0] != last)
    await soon(lambda: len(backup.newest_first(path, clock())) == 2)  # the oldest go last
    task.cancel()
    await database.close()
    assert len(backup.newest_first(path, clock())) == 2


async def test_what_was_said_leaves_the_index_after_as_many_days_as_configured(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.01)
    clock, memory = FakeClock(), {"retention_days": 5}
    async with running(tmp_path, clock=clock, memory=memory) as engine:
        await engine.ask("the first boat")
        async with asyncio.timeout(30):
            await until(lambda: "the first boat" in indexed(tmp_path))
    clock.advance(days=10)
    async with running(tmp_path, clock=clock, memory=memory) as engine:
        await engine.ask("the second boat")
        async with asyncio.timeout(30):
            await until(lambda: "the second boat" in indexed(tmp_path))
    assert "the first boat" not in indexed(tmp_path)


def indexed(folder: Path) -> str:
    """Everything that stands in the memory index of a storage folder."""
    if not (path := folder / INDEX_FOLDER / "index.db").is_file():
        return ""
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.set_busy_timeout(5_000)
    found: list[str] = []
    if reader.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memory_chunks'").fetchall():
        found += [str(body) for (body,) in reader.execute("SELECT body FROM memory_chunks")]
    reader.close()
    return "\n".join(found)


async def test_notes_are_looked_through_as_often_as_configured(tmp_path, note):
    async with index_of(tmp_path, sync_minutes=0.0005) as index:
        for files in (1, 2):  # the first may be found by the look at the start
            note(f"memory/{files}.md", "oolong\n")
            for _ in range(100):  # it has no event of its own
                if (await index.status()).files == files:
                    break
                await asyncio.sleep(0.01)
            assert (await index.status()).files == files


@pytest.mark.parametrize(("weight", "second"), [(1.0, "memory/b.md"), (0.2, "memory/c.md")])
async def test_the_same_again_is_ranked_lower_as_configured(tmp_path, note, weight, second):
    note("memory/a.md", "the harbour harbour boat sails at noon from the pier\n")
    note("memory/b.md", "the harbour harbour boat sails at noon from the pier\n")
    note("memory/c.md", "someone asked about a harbour in a far country long ago and left\n")
    async with index_of(tmp_path, mmr_lambda=weight) as index:
        found = paths(await index.search("harbour boat", MAIN, 2))
    assert found[1] == second


@pytest.mark.parametrize(("each", "best"), [(1, "2025-01-01"), (4, "2026-11-20")])
async def test_as_many_candidates_are_ranked_as_configured(tmp_path, note, each, best):
    note("memory/2025-01-01.md", "harbour lights\n")
    note("memory/2026-11-20.md", "harbour lights\n")
    async with index_of(tmp_path, candidate_multiplier=each, half_life_days=1) as index:
        assert paths(await index.search("harbour", MAIN, 1)) == [f"memory/{best}.md"]


@pytest.mark.parametrize("seconds", [7, 30])
async def test_a_long_poll_of_telegram_waits_as_long_as_configured(seconds):
    async with FakeTelegram() as fake:
        engine, config = RecordingEngine(), telegram_channel.settings(fake, poll_timeout=seconds)
        async with telegram_channel.running(engine, config):
            async with asyncio.timeout(60):
                await until(lambda: bool(fake.called("getUpdates")))
        assert float(fake.called("getUpdates")[0].params["timeout"]) == seconds


@pytest.mark.parametrize(("days", "first"), [(0, "2025-01-01"), (1, "2026-11-20")])
async def test_dated_notes_lose_their_head_start_as_configured(tmp_path, note, days, first):
    note("memory/2025-01-01.md", "harbour lights\n")
    note("memory/2026-11-20.md", "harbour lights\n")
    async with index_of(tmp_path, half_life_days=days) as index:
        assert paths(await index.search("harbour", MAIN))[0] == f"memory/{first}.md"


@pytest.mark.parametrize("whose", ["agent", "imported", "untrusted"])
@pytest.mark.parametrize(("days", "first"), [(0, "a"), (1, "b")])
async def test_what_nobody_said_fades_as_fast_as_configured(tmp_path, note, whose, days, first):
    note("memory/a.md", f"- harbour lights lights <!-- {whose} 2026-01-01 -->\n")
    note("memory/b.md", "- harbour lights\n")
    aging = {whose: days, "search_share": 0.5}
    async with index_of(tmp_path, aging=aging, mmr_lambda=1) as index:
        assert paths(await index.search("harbour lights lights", MAIN))[0] == f"memory/{first}.md"


@pytest.mark.parametrize(("share", "first"), [(0, "a"), (0.5, "b")])
async def test_what_has_faded_is_ranked_lower_as_configured(tmp_path, note, share, first):
    note("memory/a.md", "- harbour lights lights <!-- agent 2020-01-01 -->\n")
    note("memory/b.md", "- harbour lights\n")
    aging = {"search_share": share}
    async with index_of(tmp_path, aging=aging, mmr_lambda=1) as index:
        assert paths(await index.search("harbour lights lights", MAIN))[0] == f"memory/{first}.md"


async def test_the_bot_speaks_the_configured_language(tmp_path):
    async with running(tmp_path, agent={"timezone": "UTC", "language": "zh"}) as engine:
        assert "对话" in await engine.ask("/help")


async def test_the_model_is_asked_for_no_longer_reply_than_configured(tmp_path):
    async with running(tmp_path, agent={"timezone": "UTC", "max_tokens": 512}) as engine:
        await engine.ask("hello")
    assert engine.model.requests[0].max_tokens == 512


async def test_the_model_is_called_no_more_often_in_a_turn_than_configured(tmp_path):
    model = ScriptedModel(lambda _request: calls("memory_search", query="boats"))
    agent = {"timezone": "UTC", "max_steps": 2}
    async with running(tmp_path, model=model, agent=agent) as engine:
        await engine.ask("hello")
    assert len(model.requests) <= 3  # one more tells what was found


async def test_notes_are_kept_in_the_configured_folder(tmp_path):
    notes = tmp_path / "notes"
    async with running(tmp_path / "kept", memory={"workspace": notes}):
        assert (notes / "AGENTS.md").exists()


async def test_the_model_is_told_to_cite_memory_as_configured(tmp_path):
    systems: list[str] = []
    for wish in ("on", "off"):
        async with running(tmp_path / wish, memory={"citations": wish}) as engine:
            await engine.ask("hello")
        systems.append(engine.model.requests[0].system)
    assert systems[0] != systems[1]


@pytest.mark.usefixtures("believes_every_figure")
async def test_a_conversation_is_told_of_at_the_configured_levels(tmp_path):
    async with begun(tmp_path, Brain(), notice_percent=[30]) as engine:
        await talk(engine, 1)
        notices = await reaching(engine, 72_000)
    assert [each.kind for each in notices] == ["notice"]


async def test_as_many_turns_stay_whole_in_a_compaction_as_configured(tmp_path):
    brain = Brain()
    async with begun(tmp_path, brain, compaction={"keep_turns": 1}) as engine:
        await talk(engine, 5)
        await command(engine, "/compact")
        await ask(engine, "after")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 4"


async def test_ranks_that_are_wanted_and_missing_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with capture_logs() as told:
        async with running(tmp_path, context={"tokenizer": "tiktoken"}):
            pass
    assert "tokens.no_ranks" in [each["event"] for each in told]


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("name", ["console", "web"])
async def test_a_channel_runs_where_it_is_enabled(tmp_path, name, enabled):
    plugins = settings.installed_channels()
    config = settings.config_model(plugins).model_validate(
        {"storage": {"dir": tmp_path}, "channels": {name: {"enabled": enabled}}}
    )
    assert (name in App(config, plugins)._channels()) is enabled


async def test_old_results_are_shortened_when_the_cache_is_as_old_as_configured(tmp_path):
    brain = Brain(chat=reading(1), input_window=32_000)
    async with begun(tmp_path, brain, pruning={"ttl_minutes": 60}) as engine:
        boats(tmp_path)
        for number in range(5):
            await ask(engine, f"look {number}")
        for minutes in (10, 61):
            engine.clock.advance(minutes=minutes)
            await ask(engine, "talk")
    shortened = ["Only the beginning and the end" in str(r.messages) for r in brain.asked("chat")]
    assert shortened[-2:] == [False, True]


async def test_the_bot_has_the_configured_name_and_model(tmp_path):
    agent = {"timezone": "UTC", "name": "Ottokar", "model": "own-model"}
    async with running(tmp_path, agent=agent) as engine:
        await engine.ask("hello")
    assert "Ottokar" in engine.model.requests[0].system
    assert engine.model.requests[0].model == "own-model"


async def test_only_the_owners_own_chats_are_told_what_the_owner_is_called(tmp_path):
    session = {"owner": ("memory:ada",), "owner_name": "Augusta Ada King"}
    channels = {"memory": {"group_policy": "open"}}
    async with running(tmp_path, session=session, channels=channels) as engine:
        await engine.ask("hello")
        await engine.ask("hello", sender="eve")
        await engine.say("@bot hello", chat="g1", chat_type="group", mentions_bot=True)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("g1")))
        requests = engine.model.requests
        said = ["Augusta" in f"{each.system}{each.messages}" for each in requests]
        assert (len(requests), said) == (3, [True, False, False])
        again = await engine.ask("and again")
        assert again
        assert engine.model.requests[-1].system == requests[0].system


async def test_everything_is_kept_in_the_configured_folder(tmp_path):
    async with running(tmp_path / "kept"):
        assert (tmp_path / "kept" / "confidant.db").exists()


async def test_a_backup_is_made_after_the_configured_hours(tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "FIRST_BACKUP_SECONDS", 0)
    path, clock = tmp_path / "confidant.db", FakeClock()
    database = await SqliteDatabase.open(path)
    old = backup.make(path, 9, clock())
    os.utime(old, (clock() / 1000, clock() / 1000))
    clock.advance(hours=2)
    config = StorageConfig(backup_hours=1)
    task = asyncio.create_task(housekeeping.keep_copies(config, database, clock))
    for _ in range(100):  # it has no event of its own
        if backup.newest_first(path, clock())[0] != old:
            break
        await asyncio.sleep(0.01)
    made = backup.newest_first(path, clock())[0]
    task.cancel()
    await database.close()
    assert made != old


@pytest.mark.parametrize("wish", [False, True])
async def test_memory_is_saved_before_a_compaction_as_configured(tmp_path, wish):
    brain = Brain()
    async with begun(tmp_path, brain, enable_memory_flush=wish) as engine:
        await talk(engine, 5)
        await command(engine, "/compact")
    assert bool(brain.asked("flush")) is wish


@dataclass
class Late(Brain):
    """A model that takes far too long for one purpose."""

    late: str = ""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        if request.purpose == self.late:
            await asyncio.sleep(LATE)
        async for event in super().stream(request):
            yield event


async def test_a_compaction_takes_no_longer_than_configured(tmp_path):
    brain = Late(late="summary")
    async with begun(tmp_path, brain, compaction={"timeout": 0.05}) as engine:
        await talk(engine, 5)
        await command(engine, "/compact")
        assert current(tmp_path)["compaction"] is None


async def test_a_saving_takes_no_longer_than_configured(tmp_path):
    brain = Late(late="flush", flush=writing(SAVED))
    async with begun(tmp_path, brain, memory_flush_timeout=0.05) as engine:
        await talk(engine, 5, BOAT)
        await command(engine, "/compact")
    assert not any("Wanda" in each.read_text() for each in tmp_path.rglob("memory/*.md"))


@dataclass
class SlowSearcher(WordSearcher):
    """A searcher that takes far too long and notes that it was waited for."""

    delay: float = LATE
    finished: int = 0

    async def search(
        self, query: str, partitions: Sequence[str], limit: int | None, /, **_when: Any
    ) -> Findings:
        found = await super().search(query, partitions, limit)
        self.finished += 1
        return found


async def test_recalling_takes_no_longer_than_configured(tmp_path):
    searcher = SlowSearcher(tmp_path / "workspace")
    async with running(tmp_path, searcher=searcher, memory={"recall_timeout": 0.05}) as engine:
        await engine.ask_each("the cat is called Mo", "/new", "what is the cat called?")
        assert searcher.asked
        assert searcher.finished == 0


class SlowEmbedder(HashEmbedder):
    """An embedder that takes a second."""

    async def embed(self, texts):
        await asyncio.sleep(1)
        return await super().embed(texts)


async def test_a_search_takes_no_longer_than_configured(tmp_path, note):
    note("memory/tea.md", "oolong\n")
    async with index_of(tmp_path, SlowEmbedder(), search_timeout=0.5) as index:
        answer = await index.search("oolong", MAIN)
    assert any("in time" in why or "too long" in why for why in answer.degraded)


async def test_a_server_for_vectors_is_waited_for_as_long_as_configured():
    async def late(api, request):
        await asyncio.sleep(LATE)
        return await embeddings_api.vectors(api, request)

    async with embeddings_api.running(late) as api:
        config = EmbedderConfig(provider="openai", model="m", base_url=api.base_url, timeout=0.05)
        embedder = RemoteEmbedder(config)
        with pytest.raises(EmbedderError, match="did not answer in time"):
            await embedder.embed(["one"])
        await embedder.close()


async def test_what_comes_meanwhile_is_waited_for_as_long_as_configured(tmp_path, monkeypatch):
    waits: list[float | None] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda delay: waits.append(delay) or timeout(delay))
    queue = {"mode": "collect", "debounce": 0.0123}
    async with running(tmp_path, session={"queue": queue}) as engine:
        await engine.ask("hello")
    assert 0.0123 in waits


@pytest.mark.parametrize("cap", [3, 20])
async def test_more_than_the_configured_number_is_told(tmp_path, cap):
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model, session={"queue": {"cap": cap}}) as engine:
        for number in range(10):
            await engine.say(f"n{number}")
        model.gate.set()
        await engine.channel.wait_until(lambda _: "n9" in str(model.requests[-1:]))
        assert any("waiting" in each for each in engine.sent_to("ada")) is (cap == 3)


@pytest.mark.parametrize("watch", [True, False])
async def test_edits_are_watched_for_as_configured(tmp_path, note, watch):
    async with index_of(tmp_path, watch=watch) as index:
        for _ in range(100):  # it has no event of its own
            if index._watching != "not started":
                break
            await asyncio.sleep(0.01)
        assert index._watching == ("" if watch else "off")


async def test_servers_listen_where_they_are_told(tmp_path, monkeypatch):
    places: list[tuple[str, int]] = []

    async def start(_self: HttpServer, host: str, port: int) -> tuple[str, int]:
        places.append((host, port))
        return host, port

    monkeypatch.setattr(HttpServer, "start", start)
    async with FakeTelegram() as fake:
        webhook = {"mode": "webhook", "webhook_url": "https://bot.example", "webhook_secret": "s"}
        config = telegram_channel.settings(
            fake, **webhook, webhook_host="127.0.0.2", webhook_port=9001
        )
        async with telegram_channel.running(RecordingEngine(), config):
            await soon(lambda: len(places) == 1 and bool(fake.called("setWebhook")))
            assert fake.called("setWebhook")
        assert fake.called("setWebhook")[0].params["url"] == "https://bot.example/telegram/default"
    talk_section = nextcloud_talk.NextcloudTalkConfig(
        base_url="https://cloud.example",
        bot_secret=SecretStr("s"),
        webhook_host="127.0.0.3",
        webhook_port=9002,
    )
    channel = NextcloudTalk(talk_section)
    await channel.start(RecordingEngine())
    await soon(lambda: len(places) == 2)
    await channel.stop()
    async with running(tmp_path, dashboard={"host": "localhost", "port": 9003}, serves=True):
        pass
    assert places == [("127.0.0.2", 9001), ("127.0.0.3", 9002), ("localhost", 9003)]


async def test_telegram_is_reached_where_it_is_configured():
    config = telegram.TelegramConfig(token=SecretStr("7:t"), api_root="http://127.0.0.1:9")
    async with aiohttp.ClientSession() as session:
        account = Telegram(config)._account("default", "7:t", RecordingEngine(), session)
    assert account.bot.base_url == "http://127.0.0.1:9/bot7:t"
    assert type(account).__name__ == "PollingAccount"
