"""How fast a model is, and how long something may take by that."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Reply, Request, TextDelta, Usage, speed
from bot.agent.models.registry import Models
from bot.agent.models.speed import LONGEST, MARGIN, Speed, Stopwatch, standing_still, time_limit
from bot.errors import ModelOverloaded, ModelPutOff, ModelTimeout
from bot.messages import Message, Text
from bot.testing import ScriptedModel
from tests.support import Seconds, settings_of

RATES = st.floats(0.01, 100_000)


def timed(reading: float, writing: float, usage: Usage, *, words: int = 0, **how):
    """The estimate after a call that took so many seconds."""
    clock = Seconds()
    watch = Stopwatch(clock)
    clock.now += reading
    watch.hear(1, **how)
    clock.now += writing
    watch.hear((words or usage.output_tokens) - 1)
    return watch.whole(Speed(), usage)


@pytest.mark.parametrize(
    ("reading", "writing", "usage", "expected"),
    [
        (50.0, 10.0, Usage(2_000, 80), Speed(40, 8)),
        (50.0, 10.0, Usage(1_000, 80, 5_000, 1_000), Speed(40, 8)),  # what was cached was not read
        (2.0, 10.0, Usage(50, 80, 5_000), Speed(0, 8)),  # too little to read to tell
        (50.0, 1.0, Usage(2_000, 8), Speed(40, 0)),  # too little to write
        (50.0, 0.0, Usage(2_000, 80), Speed()),  # it came in one piece
        (50.0, 10.0, Usage(), Speed()),  # nothing is reported
    ],
)
def test_a_speed_is_what_was_read_until_the_first_word_and_written_after_it(
    reading, writing, usage, expected
):
    assert timed(reading, writing, usage, words=80) == expected


def test_what_is_thought_out_of_sight_is_no_slow_reading():
    usage = Usage(1_000, 2_000)
    assert timed(60.0, 2.0, usage, words=40) == Speed()
    assert timed(60.0, 50.0, usage, words=40, thought=True) == Speed(1_000 / 60, 40)


def test_a_figure_that_cannot_be_teaches_nothing():
    clock = Seconds()
    watch = Stopwatch(clock)
    clock.now += 10
    watch.hear(1)
    assert watch.whole(Speed(), Usage(9_000, 1), 2_000) == Speed()
    assert watch.whole(Speed(), Usage(3_000, 1), 2_000) == Speed(300)


def test_a_call_that_is_sent_once_more_counts_from_then_on():
    clock = Seconds()
    watch = Stopwatch(clock)
    clock.now += 100
    watch.start()
    clock.now += 10
    watch.hear(1)
    assert watch.whole(Speed(), Usage(400, 1)) == Speed(40, 0)


@given(known=RATES, measured=RATES)
def test_an_estimate_moves_towards_what_was_measured_and_rises_slowly(known, measured):
    moved = Speed(known).learn(measured).prompt
    assert min(known, measured) <= moved <= max(known, measured)
    assert moved <= known * speed.RISE * 1.000001


def test_a_call_that_broke_off_says_how_fast_it_was_at_most():
    clock = Seconds()
    watch = Stopwatch(clock)
    clock.now += 100
    assert watch.broken_off(Speed(), 1_000) == Speed(10)
    assert watch.broken_off(Speed(20, 3), 1_000) == Speed(15, 3)
    assert watch.broken_off(Speed(5), 1_000) == Speed(5)  # it was known to be slower
    watch.hear(1)
    clock.now += 10
    watch.hear(39)
    assert watch.broken_off(Speed(5), 1_000) == Speed(5, 4)


@given(RATES, RATES, st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0.01, 5_000))
def test_a_limit_is_long_enough_for_the_speed_and_never_below_the_usual_or_above_an_hour(
    prompt, output, to_read, to_write, usual
):
    found = Speed(prompt, output).limit(usual, usual, prompt=to_read, output=to_write)
    needed = MARGIN * (to_read / prompt + to_write / output)
    assert usual <= found <= max(usual, LONGEST)
    assert found >= min(LONGEST, needed) * 0.999999


def test_a_limit_that_a_person_chose_is_kept():
    assert Speed(1, 1).limit(5.0, 600.0, prompt=9_999, output=9_999) == 5.0


def test_without_a_measurement_a_limit_suits_a_small_machine():
    assert Speed().limit(30.0, 30.0, prompt=4_000, output=2_000) == MARGIN * (100 + 250)


@pytest.mark.parametrize("kept", [None, "", "{", "[]", '{"m": 1}', '{"m": {"prompt": -1}}'])
def test_what_makes_no_sense_is_not_kept(kept):
    assert speed.from_json(kept) == {}


def test_speeds_are_kept_as_they_are():
    found = {"own/small": Speed(41.23, 8.5), "anthropic/m": Speed(3_000, 0)}
    assert speed.from_json(speed.to_json(found)) == found


async def test_a_limit_does_not_run_while_somebody_waits_for_a_place(monkeypatch):
    loop = asyncio.get_running_loop()
    async with time_limit(60) as outer, time_limit(30) as inner:
        until = outer.when(), inner.when()
        with standing_still():
            assert (outer.when(), inner.when()) == (None, None)
            real = loop.time
            monkeypatch.setattr(loop, "time", lambda: real() + 1_000)
        assert all(
            now >= was + 1_000 for now, was in zip((outer.when(), inner.when()), until, strict=True)
        )
        monkeypatch.undo()


async def test_a_limit_that_was_ended_meanwhile_ends():
    async def wait() -> None:
        async with time_limit(60) as limit:
            with standing_still():
                limit.reschedule(0)
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()


# --- where it is measured -------------------------------------------------------------------------


@dataclass
class Paced(ScriptedModel):
    """A service that reads and writes at a speed, by a clock that it moves itself."""

    clock: Seconds = field(default_factory=Seconds)
    speed: Speed = field(default_factory=lambda: Speed(40, 8))
    prompt: int = 2_000
    reply: str = "word " * 60
    fails: bool = False

    async def stream(self, request):
        self.requests.append(request)
        self.clock.now += self.prompt / self.speed.prompt
        if self.fails:
            raise ModelTimeout
        words = self.reply.split()
        for word in words:
            yield TextDelta(f"{word} ")
            self.clock.now += 1 / self.speed.output
        message = Message("assistant", (Text(self.reply),))
        yield Reply(message, "end", Usage(self.prompt, len(words)))


def models_of(service: Paced, **section: Any) -> Models:
    models = {"own": {"kind": "openai", **section}}
    settings = settings_of(agent={"model": "own/m"}, models=models)
    return Models(settings, {"own": service}, now=service.clock)


async def asked(models: Models, **request: Any) -> None:
    wanted = Request("own/m", "", (Message("user", (Text("hello"),)),), **request)
    async with aclosing(models.stream(wanted)) as events:
        async for _ in events:
            pass


async def test_each_reply_is_measured_and_what_the_service_may_be_silent_grows():
    service = Paced()
    models = models_of(service, base_url="http://127.0.0.1:1/v1")
    await asked(models, tokens=10_000)
    assert models.speeds["own/m"].prompt == pytest.approx(40, rel=0.01)
    assert models.speeds["own/m"].output == pytest.approx(8, rel=0.05)
    await asked(models, tokens=10_000)
    silence = service.requests[-1].silence
    assert silence is not None
    assert silence == pytest.approx(MARGIN * 10_000 / 40, rel=0.02)


async def test_a_silence_that_was_configured_is_kept():
    service = Paced()
    models = models_of(service, base_url="http://127.0.0.1:1/v1", timeout=5)
    await asked(models, tokens=10_000)
    assert service.requests[-1].silence == 5


async def test_a_call_that_took_too_long_makes_the_next_limit_longer():
    service = Paced(fails=True)
    models = models_of(service, base_url="http://127.0.0.1:1/v1")
    service.speed = Speed(4, 1)
    with pytest.raises(ModelTimeout):
        await asked(models, tokens=2_000)
    assert models.speed("own/m").prompt == pytest.approx(4)
    with pytest.raises(ModelTimeout):
        await asked(models_of(service), tokens=2_000)
    assert models_of(service).speeds == {}


async def test_a_chore_that_is_put_off_is_no_failure_of_the_service():
    class Stuck(Paced):
        async def stream(self, request):
            if request.purpose == "flush":
                self.started.set()
                await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    service = Stuck()
    models = models_of(service, lanes=1)
    chore = asyncio.create_task(asked(models, purpose="flush"))
    await service.started.wait()
    await asked(models)
    with pytest.raises(ModelPutOff):
        await chore
    await asked(models)


async def test_a_service_with_one_lane_is_sent_one_request_at_a_time():
    service = Paced()
    service.gate = asyncio.Event()

    async def held(request):
        service.requests.append(request)
        await service.gate.wait()
        yield Reply(Message("assistant", (Text("Yes."),)), "end")

    service.stream = held
    models = models_of(service, lanes=1)
    both = [asyncio.create_task(asked(models)) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(service.requests) == 1
    service.gate.set()
    await asyncio.gather(*both)
    assert len(service.requests) == 2


async def test_whoever_a_busy_service_refuses_is_answered_as_soon_as_it_is_free():
    service = Paced()
    service.gate = asyncio.Event()
    running = 0

    async def single(request):
        nonlocal running
        service.requests.append(request)
        if running:
            raise ModelOverloaded
        running += 1
        await service.gate.wait()
        running -= 1
        yield Reply(Message("assistant", (Text("Yes."),)), "end")

    service.stream = single
    models = models_of(service, base_url="http://127.0.0.1:1/v1")
    both = [asyncio.create_task(asked(models)) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(service.requests) == 2
    service.gate.set()
    await asyncio.gather(*both)
    assert len(service.requests) == 3
