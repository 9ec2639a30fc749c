"""Options that may change while the program runs: what shows each of them, shown once more.

Here its engine starts without what the test configures, and is given that once it runs.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from bot.app import App, Parts
from bot.channel import Section
from bot.config import Config
from bot.memory.index.service import MemoryIndex
from bot.settings.fields import is_live
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import Brain
from tests.integration import (
    test_context_engine,
    test_engine,
    test_memory_commands,
    test_memory_index,
    test_options,
)
from tests.integration.test_memory_index import note
from tests.support import NOON, Engine, FakeClock, make_config, running, settings_of

__all__ = ["note"]

MODULES = (test_context_engine, test_engine, test_memory_commands, test_options)
# By option: the test, and what it is given beside fixtures.
SHOWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "agent.turn_timeout": (test_options.test_a_turn_that_takes_longer_than_configured_is_ended, {}),
    "session.owner_name": (
        test_options.test_only_the_owners_own_chats_are_told_what_the_owner_is_called,
        {},
    ),
    "session.queue.mode": (test_engine.test_collect_answers_what_waited_together, {}),
    "session.queue.debounce": (
        test_options.test_what_comes_meanwhile_is_waited_for_as_long_as_configured,
        {},
    ),
    "context.enable_memory_flush": (
        test_options.test_memory_is_saved_before_a_compaction_as_configured,
        {"wish": True},
    ),
    "context.memory_flush_timeout": (
        test_options.test_a_saving_takes_no_longer_than_configured,
        {},
    ),
    "context.pruning": (
        test_options.test_old_results_are_shortened_when_the_cache_is_as_old_as_configured,
        {},
    ),
    "context.compaction.keep_turns": (
        test_options.test_as_many_turns_stay_whole_in_a_compaction_as_configured,
        {},
    ),
    "context.compaction.timeout": (
        test_options.test_a_compaction_takes_no_longer_than_configured,
        {},
    ),
    "memory.recall_timeout": (test_options.test_recalling_takes_no_longer_than_configured, {}),
    "memory.citations": (test_options.test_the_model_is_told_to_cite_memory_as_configured, {}),
    "memory.max_results": (
        test_memory_commands.test_a_search_quotes_as_many_passages_as_configured,
        {"options": {"max_results": 2}, "most": 2},
    ),
    "memory.retention_days": (
        test_options.test_what_was_said_leaves_the_index_after_as_many_days_as_configured,
        {},
    ),
    "memory.candidate_multiplier": (
        test_options.test_as_many_candidates_are_ranked_as_configured,
        {"each": 1, "best": "2025-01-01"},
    ),
    "memory.half_life_days": (
        test_options.test_dated_notes_lose_their_head_start_as_configured,
        {"days": 0, "first": "2025-01-01"},
    ),
    "memory.aging.agent": (
        test_options.test_what_nobody_said_fades_as_fast_as_configured,
        {"whose": "agent", "days": 1, "first": "b"},
    ),
    "memory.aging.search_share": (
        test_options.test_what_has_faded_is_ranked_lower_as_configured,
        {"share": 0, "first": "a"},
    ),
    "memory.mmr_lambda": (
        test_options.test_the_same_again_is_ranked_lower_as_configured,
        {"weight": 1.0, "second": "memory/b.md"},
    ),
    "memory.search_timeout": (test_options.test_a_search_takes_no_longer_than_configured, {}),
}


def settled(sections: dict[str, Any], key: tuple[str, ...] = ()) -> dict[str, Any]:
    """What of these options does not change while the program runs."""
    found: dict[str, Any] = {}
    for name, value in sections.items():
        if name == "channels":  # the channel is the test's own, and begun once
            found[name] = value
            continue
        if is_live((*key, name)):
            continue
        if isinstance(value, dict):
            value = settled(cast("dict[str, Any]", value), (*key, name))  # noqa: PLW2901
            if not value:
                continue
        found[name] = value
    return found


@asynccontextmanager
async def changed_meanwhile(folder: Path, **given: Any) -> AsyncIterator[Engine]:
    """`running`, but live options count only once it runs."""
    sections = {name: given.pop(name) for name in tuple(given) if name in Config.model_fields}
    async with running(folder, **settled(sections), **given) as engine:
        config, _ = make_config(folder, **sections)
        await engine.app.adopt(config)
        yield engine


@asynccontextmanager
async def index_changed_meanwhile(
    folder: Path, embedder: Any = None, **config: Any
) -> AsyncIterator[MemoryIndex]:
    settings = settings_of(memory={"watch": False})
    async with test_memory_index.index_of(folder, embedder, settings=settings) as index:
        settings.now = settings_of(memory={"watch": False, **config}).now
        yield index


@pytest.mark.parametrize("option", sorted(SHOWN))
async def test_an_option_counts_while_the_program_runs(option, tmp_path, monkeypatch, request):
    assert is_live(tuple(option.split(".")))
    for module in MODULES:
        monkeypatch.setattr(module, "running", changed_meanwhile)
    monkeypatch.setattr(test_options, "index_of", index_changed_meanwhile)
    shown, given = SHOWN[option]
    wanted = inspect.signature(shown).parameters.keys() - given.keys()
    await shown(**{name: request.getfixturevalue(name) for name in wanted}, **given)


async def test_the_operators_wishes_for_saving_count_while_the_program_runs(tmp_path):
    brain = Brain()
    sections: dict[str, Any] = {"context": {"enable_memory_flush": True}}
    async with running(tmp_path, model=brain, **sections) as engine:
        wishes = {"flush": {"prompt": "Leave out the weather."}}
        config, _ = make_config(tmp_path, memory=wishes, **sections)
        await engine.app.adopt(config)
        await test_context_engine.talk(engine, 5)
        await engine.ask("/compact")
        await test_context_engine.done(engine)
    assert "Leave out the weather." in str(brain.asked("flush")[0])


async def test_what_waits_for_a_start_stays_as_it_was(tmp_path):
    async with running(tmp_path) as engine:
        config, _ = make_config(tmp_path, memory={"text_weight": 0.0}, session={"max_turns": 1})
        await engine.app.adopt(config)
        counts = engine.app.settings.now
        assert (counts.memory.text_weight, counts.session.max_turns) == (0.5, 64)
        assert isinstance(counts.memory, Section)


async def test_days_of_usage_and_the_installed_name_follow_the_zone_and_the_name(tmp_path):
    clock = FakeClock(NOON - 7 * 3_600_000)
    async with running(tmp_path, clock=clock, serves=True) as engine:
        await engine.ask("hello")  # at five in the morning, in UTC
        assert engine.app.address is not None
        url = engine.app.address.url.rstrip("/")
        headers = {"Accept": "text/html"}
        async with aiohttp.ClientSession(headers=headers) as client:

            async def days() -> set[str]:
                async with client.get(f"{url}/api/usage") as answer:
                    return {line["name"] for line in (await answer.json())["by_day"]}

            async def read(path: str) -> str:
                async with client.get(f"{url}{path}") as answer:
                    return await answer.text()

            assert await days() == {"2026-11-21"}
            assert "2026-11-21" in await read("/usage")
            assert "2026-11-21" in await read("/overview")
            agent = {"name": "Heron", "timezone": "Pacific/Pago_Pago"}
            config, _ = make_config(tmp_path, agent=agent)
            await engine.app.adopt(config)
            assert await days() == {"2026-11-20"}
            assert "2026-11-21" not in await read("/usage")
            assert "2026-11-21" not in await read("/overview")
            assert '"name":"Heron"' in await read("/manifest.webmanifest")


async def test_no_service_keeps_options_that_others_took_the_place_of(tmp_path):
    """One that did would go on by what they were at the start."""
    config, plugins = make_config(tmp_path, dashboard={"port": 0})
    channel, clock, model = InMemoryChannel(), FakeClock(), ScriptedModel()
    parts = Parts(clock=clock, remote=model, channels={"memory": channel})
    async with App(config, plugins, parts) as app:
        engine = Engine(app, channel, model, clock, tmp_path)
        await engine.ask("hello")
        await app.adopt(make_config(tmp_path, dashboard={"port": 0})[0])
        # A snapshot stays as it is for as long as work goes by it, and the page knows the files.
        assert holders(config) <= {"coroutine", "Policy", "ChangeableSettings"}
        live = (config.agent, config.limits, config.session, config.context, config.memory)
        for each in live:
            found = holders(each, vars(config), live)
            assert found <= {"coroutine", "AccountSettings"}, type(each)


def holders(table: Section, *but: object) -> set[str]:
    """The types of what holds a table."""
    found = [each for each in gc.get_referrers(table) if not any(each is known for known in but)]
    return {type(each).__name__ for each in found} - {"frame", "list"}
