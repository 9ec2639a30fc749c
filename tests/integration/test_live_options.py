"""Options that may change while the program runs."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import aiohttp

from bot.app import App, Parts
from bot.channel import Section
from bot.settings.fields import is_live
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import Brain
from tests.ignoring import declared, options
from tests.integration import test_context_engine
from tests.support import NOON, Engine, FakeClock, make_config, running

LIVE = {
    place: name
    for name, place in options().items()
    if name.partition(".")[0] not in {"channels", "models"} and is_live(tuple(name.split(".")))
}
# What `App.adopt` makes anew, or tells.
RENEWED = {"bot.identity.conversation", "bot.channel.config", "bot.dashboard.guard"}


def reader() -> str:
    """The module that reads something now, if that is while a part of the program is built."""
    frame: FrameType | None = sys._getframe(2)
    first = frame.f_globals["__name__"] if frame is not None else ""
    while frame is not None:
        if frame.f_globals["__name__"].startswith("bot.composition."):
            return first
        frame = frame.f_back
    return ""


async def test_nothing_that_is_built_at_the_start_reads_an_option_that_may_change(
    tmp_path, monkeypatch
):
    read: set[tuple[str, str]] = set()
    names = {name for _, name in LIVE}

    def watched(self: Section, name: str) -> Any:
        option = LIVE.get((declared(type(self), name), name)) if name in names else None
        if option is not None and (module := reader()):
            read.add((option, module))
        return object.__getattribute__(self, name)

    monkeypatch.setattr(Section, "__getattribute__", watched, raising=False)
    async with running(tmp_path, serves=True):
        assert {each for each in read if each[1] not in RENEWED} == set()


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


async def test_what_waits_for_a_start_stays_as_it_was(tmp_path, engine):
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
        assert holders(config) <= {"coroutine", "Policy", "ServedSettings"}
        live = (config.agent, config.limits, config.session, config.context, config.memory)
        for each in live:
            found = holders(each, vars(config), live)
            assert found <= {"coroutine", "AccountSettings"}, type(each)


def holders(table: Section, *but: object) -> set[str]:
    """The types of what holds a table."""
    found = [each for each in gc.get_referrers(table) if not any(each is known for known in but)]
    return {type(each).__name__ for each in found} - {"frame", "list"}
