"""Which model answers when the chosen one cannot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bot.agent.models import Reply, Request, TextDelta
from bot.agent.models.breaker import FIRST_PAUSE
from bot.agent.models.registry import Models
from bot.config import ModelsConfig
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelContextFull,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelTimeout,
    ModelUnreachable,
)
from bot.messages import Message, Text
from tests.fakes.faulty_model import Fault, FaultyModel

CONFIG = ModelsConfig.model_validate({"two": {"kind": "openai"}, "three": {"kind": "openai"}})
NAMES = ("anthropic/one", "two/m", "three/m")


class Ticking:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Chain:
    """Three services, one for each model; `fails` says what each of them does next."""

    clock: Ticking = field(default_factory=Ticking)
    services: dict[str, FaultyModel] = field(
        default_factory=lambda: {name.split("/")[0]: FaultyModel() for name in NAMES}
    )

    def __post_init__(self) -> None:
        self.models = Models(CONFIG, self.services, NAMES[0], NAMES[1:], self.clock)

    async def ask(self) -> tuple[str, Reply]:
        request = Request(NAMES[0], "", (Message("user", (Text("hello"),)),))
        words, reply = "", None
        async for event in self.models.stream(request):
            if isinstance(event, TextDelta):
                words += event.text
            else:
                reply = event
        assert reply is not None
        assert words == reply.message.text
        return words, reply

    def asked(self) -> list[int]:
        return [service.asked for service in self.services.values()]


@pytest.fixture
def chain() -> Chain:
    return Chain()


@pytest.mark.parametrize(
    "kind",
    [ModelOverloaded, ModelRateLimited, ModelTimeout, ModelUnreachable, ModelBilling],
)
async def test_the_next_model_answers(chain: Chain, kind: type[ModelError]):
    chain.services["anthropic"].faults = [(0, kind())]
    _, reply = await chain.ask()
    assert reply.model == "two/m"
    assert chain.asked() == [1, 1, 0]


@pytest.mark.parametrize("kind", [ModelAuth, ModelContextFull, ModelBadReply])
async def test_what_another_model_would_do_no_better_is_told(chain: Chain, kind: type[ModelError]):
    chain.services["anthropic"].faults = [(0, kind())]
    with pytest.raises(kind):
        await chain.ask()
    assert chain.asked() == [1, 0, 0]


async def test_after_the_first_word_nothing_is_begun_anew(chain: Chain):
    chain.services["anthropic"].faults = [(1, ModelOverloaded())]
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    assert chain.asked() == [1, 0, 0]


async def test_a_model_that_is_down_is_spared_and_then_tried_once(chain: Chain):
    chain.services["anthropic"].faults = [(0, ModelOverloaded()), (0, ModelOverloaded())]
    assert (await chain.ask())[1].model == "two/m"
    assert (await chain.ask())[1].model == "two/m"
    assert chain.asked() == [1, 2, 0]
    chain.clock.now += FIRST_PAUSE + 1
    assert (await chain.ask())[1].model == "two/m"
    chain.clock.now += FIRST_PAUSE + 1  # it is spared longer now
    assert (await chain.ask())[1].model == "two/m"
    assert chain.asked() == [2, 4, 0]
    chain.clock.now += FIRST_PAUSE
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_it_is_spared_as_long_as_it_asked_for(chain: Chain):
    error = ModelRateLimited()
    error.wait = 900.0
    chain.services["anthropic"].faults = [(0, error)]
    await chain.ask()
    chain.clock.now += 899
    assert (await chain.ask())[1].model == "two/m"
    chain.clock.now += 2
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_only_the_last_one_is_waited_for(chain: Chain):
    deadlines: list[float | None] = []

    def decide(request: Request) -> Fault:
        deadlines.append(request.deadline)
        return (0, ModelOverloaded())

    for service in chain.services.values():
        service.decide = decide
    now = asyncio.get_running_loop().time()
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    one, two, last = deadlines
    assert last is None
    assert one is not None
    assert two is not None
    assert now < one <= two


async def test_when_none_can_the_first_ones_failure_is_told(chain: Chain):
    errors = [ModelRateLimited(), ModelAuth(), ModelUnreachable()]
    for service, error in zip(chain.services.values(), errors, strict=True):
        service.faults = [(0, error)]
    with pytest.raises(ModelRateLimited):
        await chain.ask()
    assert chain.asked() == [1, 1, 1]
    assert (await chain.ask())[1].model == "two/m"  # the others are spared


async def test_when_all_are_spared_they_are_asked_all_the_same(chain: Chain):
    for service in chain.services.values():
        service.faults = [(0, ModelOverloaded())]
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_without_a_fallback_nothing_is_spared():
    service = FaultyModel(faults=[(0, ModelOverloaded()), (0, ModelOverloaded())])
    chain = Chain(services={"anthropic": service})
    chain.models = Models(CONFIG, chain.services, NAMES[0])
    for _ in range(2):
        with pytest.raises(ModelOverloaded):
            await chain.ask()
    assert (await chain.ask())[1].model == "anthropic/one"
