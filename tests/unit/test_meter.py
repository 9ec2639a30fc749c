"""What calls of a model use, also of those that never came to their end."""

from __future__ import annotations

import asyncio

from bot.agent.meter import Meter
from bot.agent.models import Reply, Usage
from bot.errors import ModelOverloaded, ModelTimeout
from bot.messages import Message

ASKED = Usage(input_tokens=5, output_tokens=1, cache_read_tokens=900, cache_write_tokens=40)


def asking(model: str = "m") -> Meter:
    meter = Meter()
    meter.asks(model)
    return meter


def said(usage: Usage, model: str = "") -> Reply:
    return Reply(Message("assistant", ()), "end", usage, model)


def test_whole_replies_add_up_as_the_service_counted_them():
    meter = Meter()
    for _ in range(2):
        meter.asks("m")
        meter.hear(ASKED)
        meter.replied(said(Usage(5, 30, 900, 40)))
    assert meter.usage == Usage(10, 60, 1_800, 80)


def test_what_fails_before_the_first_word_costs_nothing():
    meter = asking()
    meter.broke_off(ModelOverloaded(), sent=1_000, written=0)
    assert meter.usage == Usage()


def test_what_breaks_off_counts_what_the_service_said_when_it_began_and_what_was_written():
    meter = asking()
    meter.hear(ASKED)
    meter.broke_off(ModelTimeout(), sent=1_000, written=12)
    assert meter.usage == Usage(5, 12, 900, 40)


def test_a_service_that_says_nothing_before_the_end_is_estimated():
    meter = asking()
    meter.broke_off(ModelTimeout(), sent=1_000, written=12)
    assert meter.usage == Usage(1_000, 12)


def test_what_is_stopped_before_its_first_word_was_asked_all_the_same():
    meter = asking()
    meter.broke_off(asyncio.CancelledError(), sent=1_000, written=0)
    assert meter.usage == Usage(1_000)


def test_what_was_said_of_one_call_says_nothing_of_the_next():
    meter = asking()
    meter.hear(ASKED)
    meter.replied(said(Usage(1, 1)))
    meter.asks("m")
    meter.broke_off(ModelTimeout(), sent=50, written=2)
    assert meter.usage == Usage(51, 3)


def test_what_another_model_answered_is_that_ones():
    meter = asking("first")
    meter.replied(said(Usage(1), "second"))
    meter.asks("first")
    meter.replied(said(Usage(2)))
    meter.add({"second": Usage(0, 3)})
    assert meter.used == {"second": Usage(1, 3), "first": Usage(2)}
    assert meter.usage == Usage(3, 3)


def test_what_a_stand_in_breaks_off_is_that_ones_and_not_what_was_said_of_the_first():
    meter = asking("first")
    meter.hear(ASKED)
    meter.asks("second")
    meter.broke_off(ModelTimeout(), sent=1_000, written=12)
    assert meter.used == {"second": Usage(1_000, 12)}
