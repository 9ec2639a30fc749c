"""`/model`: what it lists, whom it lets choose, and what it offers to press."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bot.agent.models import Request
from bot.channel import Address, ModelChoice
from bot.errors import ModelOverloaded
from bot.testing import ScriptedModel
from tests.support import Engine, running


@dataclass
class Listing(ScriptedModel):
    """A service with models of these names."""

    listed: tuple[str, ...] = ("big", "small")
    fetched: list[str] = field(default_factory=list)

    async def names(self) -> tuple[str, ...]:
        return self.listed


async def test_people_choose_among_what_is_offered(tmp_path: Path):
    agent = {"model": "big", "choices": ("anthropic/s*",)}
    session = {"owner": ("memory:olga",)}
    model = Listing(listed=("big", "small", "dear"))
    async with running(tmp_path, model=model, agent=agent, session=session) as engine:
        told = await engine.ask("/model")
        assert "`anthropic/big`, `anthropic/small`." in told
        assert "I don't know that model" in await engine.ask("/model dear")
        assert "I don't know that model" in await engine.ask("/model anthropic/dear")
        assert "now on this conversation uses `anthropic/small`" in await engine.ask("/model small")
        assert "`anthropic/dear`" in await engine.ask("/model dear", sender="olga")
        await engine.ask("hello")
        assert model.requests[-1].model == "small"


async def test_a_few_models_can_be_pressed(tmp_path: Path):
    async with running(tmp_path, model=Listing(), agent={"model": "big"}) as engine:
        await engine.ask("/model")
        piece = engine.channel.sent[-1]
        assert [each.label for each in piece.buttons] == ["anthropic/small", "offline"]
        await engine.channel.press(piece, "anthropic/small")
        await engine.channel.wait_sent(2)
        assert "uses `anthropic/small`" in engine.channel.sent[-1].text


async def test_hundreds_are_not_all_listed(tmp_path: Path):
    model = Listing(listed=tuple(f"m{number}" for number in range(300)))
    async with running(tmp_path, model=model, agent={"model": "m0"}) as engine:
        told = await engine.ask("/model")
        assert told.count("`") == 2 * (1 + 40)
        assert "and 261 more" in told
        assert not engine.channel.sent[-1].buttons
        assert "uses `anthropic/m299`" in await engine.ask("/model m299")


async def test_a_service_that_lists_nothing_is_asked_for_any(tmp_path: Path):
    async with running(tmp_path, model=Listing(listed=()), agent={"model": "big"}) as engine:
        assert "uses `anthropic/other`" in await engine.ask("/model anthropic/other")
        assert "I don't know that model" in await engine.ask("/model nobody/other")
        assert "I don't know that model" in await engine.ask("/model other")


async def choice(engine: Engine, sender: str = "ada") -> ModelChoice:
    receiving = engine.channel.engine
    assert receiving is not None
    return await receiving.models(Address("memory", "default", sender), sender)


async def test_the_page_offers_what_the_command_does(tmp_path: Path):
    agent = {"model": "big", "choices": ("anthropic/s*",)}
    session = {"owner": ("memory:olga",)}
    model = Listing(listed=("big", "small", "dear"))
    async with running(tmp_path, model=model, agent=agent, session=session) as engine:
        # Before anything was said there is no conversation yet.
        offered = ("anthropic/big", "anthropic/small")
        assert await choice(engine) == ModelChoice("anthropic/big", offered=offered)
        await engine.ask("/model small")
        assert (await choice(engine)).chosen == "anthropic/small"
        owners = await choice(engine, "olga")
        assert owners.chosen == "anthropic/big"
        assert owners.offered[2:] == ("anthropic/dear", "offline")
    hundreds = Listing(listed=tuple(f"m{number}" for number in range(300)))
    async with running(tmp_path, model=hundreds, agent={"model": "m0"}) as engine:
        found = await choice(engine)
        assert (len(found.offered), found.more) == (40, 261)


async def test_the_page_is_told_who_stands_in(tmp_path: Path):
    def script(request: Request) -> str | Exception:
        return ModelOverloaded() if request.model == "big" else "Hello."

    agent = {"model": "big", "fallback": ("small",)}
    async with running(tmp_path, model=Listing(script), agent=agent) as engine:
        await engine.ask("hello")
        found = await choice(engine)
        assert (found.chosen, found.stand_in) == ("anthropic/big", "anthropic/small")
