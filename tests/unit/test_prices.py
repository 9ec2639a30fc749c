"""What tokens cost, and when a day begins."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Usage
from bot.agent.models.anthropic import KNOWN_NAMES
from bot.clock import moment
from bot.config import ANTHROPIC, OFFLINE, Config
from bot.money import prices
from bot.money.counts import SLOT_MS
from bot.money.periods import Period, Span, period
from bot.money.prices import LISTED, Bill, Price, Prices

tokens = st.integers(0, 10**9)
usages = st.builds(Usage, tokens, tokens, tokens, tokens)


def configured(**sections: object) -> Prices:
    return Prices.of_config(Config.model_validate(sections))


def test_every_model_the_program_names_has_a_price():
    assert set(KNOWN_NAMES) == set(LISTED[ANTHROPIC])


def test_the_four_kinds_of_tokens_have_prices_of_their_own():
    price = Price(1, 10, 0.1, 2)
    assert price.cost(Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000)) == pytest.approx(13.1)
    assert price.cost(Usage(cache_read_tokens=500_000)) == pytest.approx(0.05)


def test_the_list_is_of_the_makers_own_service():
    name, usage = "claude-opus-5-5", Usage(1_000_000)
    services = {
        "anthropic": {"base_url": "http://127.0.0.1:11434"},
        "second": {"kind": "anthropic", "api_key": "k"},
        "other": {"kind": "openai", "api_key": "k"},
        "router": {"kind": "openai", "base_url": "https://router.example/v1"},
    }
    assert configured().cost(f"anthropic/{name}", usage) == 4
    found = configured(models=services)
    assert found.cost(f"anthropic/{name}", usage) is None
    assert found.cost_at_most(f"anthropic/{name}", usage) == 8
    assert found.cost(f"second/{name}", usage) == 4
    assert found.cost(f"other/{name}", usage) is None
    assert found.cost("other/gpt-6.1-terra", usage) == 1
    assert found.cost("router/gpt-6.1-terra", usage) is None


@pytest.mark.parametrize(
    ("option", "cost"), [("input", 3), ("output", 5), ("cache_read", 7), ("cache_write", 11)]
)
def test_a_configured_price_takes_the_place_of_the_list(option: str, cost: float):
    of = {"input": 3.0, "output": 5.0, "cache_read": 7.0, "cache_write": 11.0}
    found = configured(prices={"models": {"claude-opus-5-5": of}})
    usage = {"input": Usage(10**6), "output": Usage(0, 10**6), "cache_read": Usage(0, 0, 10**6)}
    asked = usage.get(option, Usage(0, 0, 0, 10**6))
    assert found.cost("anthropic/claude-opus-5-5", asked) == cost


def test_what_a_price_leaves_out_of_the_cache_costs_what_input_does():
    found = configured(prices={"models": {"local/x": {"input": 3.0}}})
    assert found.cost("local/x", Usage(0, 0, 10**6, 10**6)) == 6


@given(usages)
def test_an_unknown_model_counts_as_the_dearest_and_the_offline_one_as_nothing(usage: Usage):
    found = configured()
    most = found.cost_at_most("nobody/knows", usage)
    costs = [price.cost(usage) for models in LISTED.values() for price in models.values()]
    assert most == max(costs)
    assert found.cost("nobody/knows", usage) is None
    assert found.cost_at_most(OFFLINE, usage) == 0


def test_a_bill_names_the_models_it_leaves_out():
    used = {"anthropic/claude-opus-5-5": Usage(10**6), "z": Usage(1), "a": Usage(2)}
    assert configured().bill(used) == Bill(Usage(10**6 + 3), 4.0, ("a", "z"))


@pytest.mark.parametrize(
    ("usd", "words"),
    [(0, "$0.00"), (0.00001, "<$0.0001"), (0.0321, "$0.0321"), (1, "$1.00"), (12.345, "$12.35")],
)
def test_amounts_are_shown_as_people_read_them(usd: float, words: str):
    assert prices.shown(usd) == words


zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "Asia/Kathmandu",
        "America/St_Johns",
        "Africa/Cairo",  # clocks change at midnight
        "America/Havana",
        "Pacific/Kiritimati",
        "Australia/Lord_Howe",
    ]
)
times = st.integers(
    int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 1000,
    int(datetime(2036, 1, 1, tzinfo=UTC).timestamp()) * 1000,
)


@given(times, zones, st.sampled_from(["day", "month"]))
def test_a_period_holds_its_time_and_the_next_begins_at_its_end(now: int, zone: str, span: Span):
    where = ZoneInfo(zone)
    found = period(span, now, where)
    assert found.start <= now < found.end
    assert period(span, found.end - 1, where) == found
    assert period(span, found.end, where).start == found.end
    assert found.start % SLOT_MS == 0 == found.end % SLOT_MS
    length = 7 if span == "month" else 10
    words = {str(moment(at, where))[:length] for at in (found.start, now, found.end - 1)}
    assert len(words) == 1


def test_a_day_has_as_many_hours_as_its_clocks_show():
    zone = ZoneInfo("Europe/Berlin")
    noon = int(datetime(2026, 10, 25, 12, tzinfo=zone).timestamp()) * 1000
    day = period("day", noon, zone)
    assert isinstance(day, Period)
    assert (day.end - day.start) / 3_600_000 == 25
