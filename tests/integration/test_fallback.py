"""What people are told when another model answers, and which model does chores."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.agent.models.breaker import Breaker
from bot.errors import ModelBadReply, ModelOverloaded, ModelRateLimited
from bot.testing import ScriptedModel
from tests.fakes.brain import LONG, Brain, query
from tests.support import running, until

AGENT = {"model": "one", "fallback": ("two",)}
STANDS_IN = "(“anthropic/one” cannot be reached now; “anthropic/two” answers for the time being.)"
BACK = "(“anthropic/one” answers again.)"


class Down:
    """A script whose first model fails while it is down."""

    def __init__(self) -> None:
        self.is_down = True

    def __call__(self, request: Request) -> str | Exception:
        if request.model == "one" and self.is_down:
            return ModelOverloaded()
        return f"{request.model} says so"


async def test_it_is_told_once_who_answers_and_once_that_the_first_is_back(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(Breaker, "is_open", lambda _self, _now: False)  # asked each time
    down = Down()
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        assert await engine.ask("a") == f"two says so\n\n{STANDS_IN}"
        assert await engine.ask("b") == "two says so"
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        assert await engine.ask("c") == "two says so"
        down.is_down = False
        assert await engine.ask("d") == f"one says so\n\n{BACK}"
        assert await engine.ask("e") == "one says so"


async def test_who_chose_another_model_is_told_nothing_of_the_first(tmp_path: Path):
    down = Down()
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        await engine.ask("a")
        await engine.ask("/model scripted-two")
        assert await engine.ask("b") == "scripted-two says so"


class Halfway(ScriptedModel):
    """One that is down, and another that breaks off after its first words."""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        if request.model == "one":
            raise ModelOverloaded
        if request.on_usage is not None:
            request.on_usage(Usage(30, 1))
        yield TextDelta("Half a")
        raise ModelBadReply


async def test_what_a_stand_in_breaks_off_counts_as_that_ones(tmp_path: Path):
    async with running(tmp_path, model=Halfway(), agent=AGENT) as engine:
        assert (await engine.ask("a")).startswith("Half a")
    rows = query(tmp_path, "SELECT model, input_tokens, output_tokens FROM usage_counts")
    assert [(model, sent) for model, sent, _ in rows] == [("anthropic/two", 30)]


async def test_without_another_model_it_is_told_when_to_try_again(tmp_path: Path):
    def script(_request: Request) -> Exception:
        error = ModelRateLimited()
        error.wait = 120.0
        return error

    async with running(tmp_path, model=ScriptedModel(script)) as engine:
        answer = await engine.ask("a")
        assert "Your message is kept; please try again in 2 minutes." in answer


async def test_the_model_for_chores_summarises_and_saves(tmp_path: Path):
    agent, brain = {"model": "one", "chores": "anthropic/small"}, Brain()
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, agent=agent, context=context) as engine:
        for number in range(6):
            await engine.ask(f"message {number}: {LONG}")
        await engine.say("/compact")
        await until(lambda: bool(brain.asked("summary")))
        by = {(request.purpose, request.model) for request in brain.requests}
        assert by == {("chat", "one"), ("flush", "small"), ("summary", "small")}
