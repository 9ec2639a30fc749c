"""What models used: counted, priced, limited."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import money
from bot.agent.models import Reply, Request, Usage
from bot.agent.models.anthropic import KNOWN_NAMES
from bot.agent.turn import Meter, added
from bot.clock import DAY_MS, moment
from bot.config import ANTHROPIC, OFFLINE, CapsConfig, Config
from bot.errors import ModelOverloaded, ModelTimeout
from bot.identity import Conversation, ConversationResolver, MessageOrigin, Policy
from bot.identity.conversation import local_zone
from bot.messages import Message, Text
from bot.money import (
    FREE,
    KEPT_MS,
    KEPT_WHOLE_MS,
    LISTED,
    SETTLED_MS,
    SLOT_MS,
    UNLIMITED,
    Allowance,
    Balance,
    Bill,
    Limit,
    LimitReached,
    LimitStatus,
    Period,
    Price,
    Prices,
    Span,
    Spent,
    UsageCount,
    period,
)
from bot.storage import Database, Transaction, records
from bot.testing import ScriptedModel, says
from bot.views import usage as days
from bot.views.usage import UsageDays, UsageReport
from tests.support import NOON, FakeClock

EVER = (0, 2**62)
USED = Usage(100, 10, 1_000, 20)


def spent(**changes: object) -> Spent:
    values = {"person": "ada", "session_id": "s1", "model": "m", "purpose": "chat", "usage": USED}
    return Spent(**{**values, **changes})  # pyright: ignore[reportArgumentType]


async def store(database: Database, *each: tuple[Spent, int]) -> None:
    for one, at in each:
        await database.write(lambda tx, one=one, at=at: money.add(tx, one, at))


async def total(database: Database, **only: str) -> Usage:
    found = await database.read(lambda tx: money.sums(tx, ["purpose"], *EVER, **only))
    return together(found)


def together(found: Iterable[UsageCount]) -> Usage:
    return sum((each.usage for each in found), Usage())


async def test_everything_is_counted_once_and_apart(each_database: Database):
    await store(
        each_database,
        (spent(), NOON),
        (spent(), NOON + 1),
        (spent(model="other/m", purpose="flush"), NOON),
        (spent(person="bob", session_id="s2"), NOON + SLOT_MS),
    )
    by_person = await each_database.read(
        lambda tx: money.sums(tx, ["person", "model", "purpose"], *EVER)
    )
    assert by_person == [
        UsageCount(("ada", "m", "chat"), 2, USED + USED),
        UsageCount(("ada", "other/m", "flush"), 1, USED),
        UsageCount(("bob", "m", "chat"), 1, USED),
    ]
    assert await total(each_database, person="bob") == USED
    rows = await each_database.read(lambda tx: tx.execute("SELECT count(*) FROM usage_counts"))
    assert rows == [(3,)]


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"])
async def test_the_days_of_any_time_zone_can_be_asked_for(each_database: Database, zone: str):
    midnight = datetime(2026, 11, 21, tzinfo=ZoneInfo(zone)).timestamp()
    start = int(midnight * 1000)
    await store(
        each_database,
        (spent(usage=Usage(1)), start - 1),
        (spent(usage=Usage(2)), start),
        (spent(usage=Usage(4)), start + DAY_MS - 1),
        (spent(usage=Usage(8)), start + DAY_MS),
    )
    today = await each_database.read(lambda tx: money.sums(tx, ["person"], start, start + DAY_MS))
    assert together(today) == Usage(6)


async def test_what_costs_nothing_leaves_no_row(each_database: Database):
    await store(each_database, (spent(usage=Usage()), NOON), (spent(model=OFFLINE), NOON))
    assert await each_database.read(lambda tx: tx.execute("SELECT * FROM usage_counts")) == []


async def test_old_counts_are_folded_into_days_and_in_the_end_dropped(each_database: Database):
    day = NOON - NOON % DAY_MS
    await store(
        each_database,
        (spent(), NOON),
        (spent(session_id="s2"), NOON + SLOT_MS),
        (spent(), NOON + 40 * DAY_MS),
    )
    later = NOON + KEPT_WHOLE_MS + 2 * DAY_MS
    for _ in range(2):  # each day again: what is folded stays what it is
        await each_database.write(lambda tx: money.prune(tx, later))
        found = await each_database.read(
            lambda tx: money.sums(tx, ["at", "session_id", "person"], *EVER)
        )
        assert found == [
            UsageCount((day, "", "ada"), 2, USED + USED),
            UsageCount((NOON + 40 * DAY_MS, "s1", "ada"), 1, USED),
        ]
    # What comes in late, for a day that was folded, joins it.
    await store(each_database, (spent(), NOON))
    await each_database.write(lambda tx: money.prune(tx, later))
    assert (await total(each_database)) == USED + USED + USED + USED
    await each_database.write(lambda tx: money.prune(tx, day + KEPT_MS + 1))
    assert (await total(each_database)) == USED


HOUR = 3_600_000
PRICES = Prices({"m": Price(1, 1, 1, 1), "free": FREE})


async def spend(database: Database, person: str, at: int, much: int, model: str = "m") -> None:
    spent = Spent(person, "s1", model, "chat", Usage(much))
    await database.write(lambda tx: money.add(tx, spent, at))


async def look(database: Database, asked: UsageDays, now: int) -> UsageReport:
    return await database.read(lambda tx: asked.look(tx, UTC, now, 5, 2))


def same(found: UsageReport) -> tuple[object, ...]:
    """What is found, whatever order it was found in."""
    used = [sorted(each.counts, key=lambda count: count.keys) for each in found.days]
    return used, found.lines, found.most


@pytest.mark.parametrize("most_kept", [days.MOST_KEPT, 1])
async def test_what_is_kept_says_the_same_as_what_is_asked_anew(
    each_database, monkeypatch, most_kept
):
    monkeypatch.setattr(days, "MOST_KEPT", most_kept)
    asked, now = UsageDays(PRICES), NOON
    for step in range(30):
        person = ("ada", "bob", "eve")[step % 3]
        await spend(each_database, person, now, step * 7 % 11 + 1, ("m", "free", "odd")[step % 2])
        if step == 20:  # somebody new becomes one of those who use most
            await spend(each_database, "zoe", now - HOUR // 2, 500)
        found = await look(each_database, asked, now)
        fresh = await look(each_database, UsageDays(PRICES), now)
        assert same(found) == same(fresh)
        now += 7 * HOUR
    assert found.most[0][0] == "zoe"
    assert len(found.days) == len(found.most[0][1]) == 5


async def test_a_day_that_is_over_is_asked_for_once(each_database: Database):
    asked, now = UsageDays(PRICES), NOON
    await spend(each_database, "ada", now - DAY_MS, 5)
    await look(each_database, asked, now)

    def empty(tx: Transaction) -> None:
        tx.execute("DELETE FROM usage_counts", ())

    await each_database.write(empty)
    again = await look(each_database, asked, now + HOUR)
    assert [line.bill.usage.input_tokens for line in again.lines["person"]] == [5]
    assert again.most[0][1][-2] == (5, 5 / 1_000_000)
    later = await look(each_database, asked, now + DAY_MS)
    assert later.lines["person"] == []  # another five days


async def test_what_one_person_used_is_theirs_day_by_day(each_database: Database):
    await spend(each_database, "ada", NOON - DAY_MS, 3)
    await spend(each_database, "ada", NOON, 4)
    await spend(each_database, "bob", NOON, 9)
    last = days.last_days(NOON, UTC, 3)
    found = await each_database.read(lambda tx: days.days_of(tx, "ada", last))
    assert [each.models for each in found] == [{}, {"m": Usage(3)}, {"m": Usage(4)}]
    assert await each_database.read(lambda tx: days.days_of(tx, "ada", [])) == []


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


async def test_what_a_service_never_tells_is_estimated_but_for_the_offline_model():
    for model, charged in (("m", Usage(4, 2)), (OFFLINE, Usage())):
        meter = Meter()
        silent = ScriptedModel(script=lambda _: replace(says("Hello."), usage=Usage()))
        await meter.ask(silent, Request(model, "seven words", (Message("user", (Text("Hi"),)),)))
        assert meter.used == {model: charged}


@pytest.mark.parametrize(
    ("heard", "error", "written", "usage"),
    [
        (None, ModelOverloaded(), 0, Usage()),  # it failed before its first word
        (None, asyncio.CancelledError(), 0, Usage(1_000)),  # it was asked all the same
        (ASKED, ModelTimeout(), 12, Usage(5, 12, 900, 40)),
        (None, ModelTimeout(), 12, Usage(1_000, 12)),  # the service says nothing before the end
    ],
)
def test_what_breaks_off_counts_what_the_service_said_when_it_began_and_what_was_written(
    heard, error, written, usage
):
    meter = asking()
    if heard is not None:
        meter.hear(heard)
    meter.broke_off(error, sent=1_000, written=written)
    assert meter.usage == usage


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
    assert money.shown_price(usd) == words


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


TARIFFS = Prices({"dear": Price(10, 10, 10, 10), "cheap": Price(1, 1, 1, 1)})
counts_of_tokens = st.integers(0, 10**7)
usages = st.builds(Usage, counts_of_tokens, counts_of_tokens, counts_of_tokens, counts_of_tokens)
used = st.dictionaries(st.sampled_from(["dear", "cheap", "new", OFFLINE]), usages, max_size=4)
all_limits = st.builds(
    Limit,
    st.sampled_from(["person", "all"]),
    st.sampled_from(["day", "month"]),
    st.sampled_from(["usd", "tokens"]),
    st.floats(0.01, 10**6),
)
DAY, MONTH = period("day", NOON, UTC), period("month", NOON, UTC)


def standing(limit: Limit, what: dict[str, Usage]) -> LimitStatus:
    return money.standing(limit, DAY if limit.span == "day" else MONTH, what, TARIFFS)


# --- the decision --------------------------------------------------------------------------------


@given(st.lists(st.tuples(all_limits, used), max_size=5))
def test_a_turn_is_refused_exactly_when_a_limit_is_used_up(found):
    balance = Balance(tuple(standing(limit, what) for limit, what in found))
    reached = [each for each in balance.standings if each.used >= each.limit.most]
    if balance.refused is None:
        assert not reached
    else:
        assert balance.refused in reached
        assert balance.refused.period.end == max(each.period.end for each in reached)


@given(all_limits, used, usages, st.sampled_from(["dear", "cheap", "new"]))
def test_using_more_never_gives_more(limit: Limit, what: dict[str, Usage], more: Usage, model: str):
    before = Balance((standing(limit, what),))
    (after,) = before.after({model: more}, TARIFFS).standings
    whole = standing(limit, added(what, {model: more}))
    assert after.used >= before.standings[0].used
    # Which one is the dearest depends on what is used of it: by itself that is never less.
    assert after.used >= whole.used * (1 - 1e-9)
    assert model == "new" or after.used == pytest.approx(whole.used)
    assert after.guessed == whole.guessed
    assert after.is_near >= before.standings[0].is_near
    assert after.is_reached <= after.is_near


@given(all_limits, used, usages)
def test_the_offline_model_uses_nothing_up(limit: Limit, what: dict[str, Usage], more: Usage):
    before = Balance((standing(limit, what),))
    assert before.after({OFFLINE: more}, TARIFFS) == before


@given(st.floats(0.01, 10**6), st.floats(0, 2))
def test_a_percentage_never_says_more_than_is_so(most: float, share: float):
    each = LimitStatus(Limit("person", "day", "usd", most), DAY, most * share)
    assert each.percent <= 100 * each.used / most + 1e-9
    assert (each.percent >= 100) <= each.is_reached
    assert each.is_near == (100 * each.used >= 80 * most)


def test_without_a_price_a_model_counts_as_the_dearest_and_says_so():
    limit = Limit("person", "day", "usd", 100)
    found = standing(limit, {"new": Usage(10**6), "cheap": Usage(10**6)})
    assert found.used == 10 + 1
    assert found.guessed == ("new",)
    in_tokens = standing(Limit("person", "day", "tokens", 100), {"new": Usage(7, 1, 1, 1)})
    assert (in_tokens.used, in_tokens.guessed) == (10, ())
    nothing_known = money.amount("usd", {"new": Usage(10**6)}, Prices({}))
    assert nothing_known == max(
        each.input for models in LISTED.values() for each in models.values()
    )


@pytest.mark.parametrize("option", ["day_usd", "day_tokens", "month_usd", "month_tokens"])
def test_each_option_is_a_limit_of_its_own(option: str):
    found = money.limits_of(CapsConfig.model_validate({option: 7}), "all")
    wanted = [("all", option, 7)]
    assert [(each.whose, f"{each.span}_{each.unit}", each.most) for each in found] == wanted
    assert money.limits_of(CapsConfig(), "all") == ()


# --- asked of the counts -------------------------------------------------------------------------


def allowed(database: Database, clock: FakeClock, **config: object) -> Allowance:
    whole = Config.model_validate({"agent": {"timezone": "UTC"}, **config})
    resolver = ConversationResolver(Policy.of(whole, local_zone(whole)))
    return Allowance(database, resolver, TARIFFS, clock)


def here(of: Allowance, sender: str = "ada") -> Conversation:
    origin = MessageOrigin("memory", "default", sender, "direct", sender)
    return of._resolver.of(origin)  # pyright: ignore[reportPrivateUsage]


async def balance(of: Allowance, sender: str = "ada", model: str = "dear", **where: str) -> Balance:
    return await of.of(here(of, sender), model)


async def spend_dear(database: Database, amount: Usage, at: int, sender: str = "ada") -> None:
    spent = Spent(f"memory:{sender}", "s", "dear", "chat", amount)
    await database.write(lambda tx: money.add(tx, spent, at))


async def test_a_person_and_everybody_have_limits_of_their_own(each_database: Database):
    clock = FakeClock()
    caps = {"in_all": {"month_tokens": 1_000}, "each": {"day_tokens": 100, "day_usd": 5}}
    of = allowed(each_database, clock, limits=caps)
    await spend_dear(each_database, Usage(60), NOON - DAY_MS)
    await spend_dear(each_database, Usage(30), NOON)
    await spend_dear(each_database, Usage(200), NOON, "bob")
    found = {(s.limit.whose, s.limit.unit): s.used for s in (await balance(of)).standings}
    assert found == {("person", "tokens"): 30, ("person", "usd"): 0.0003, ("all", "tokens"): 290}
    assert (await balance(of)).refused is None
    refused = (await balance(of, "bob")).refused
    assert refused is not None
    assert (refused.limit.span, refused.period.end) == ("day", NOON + DAY_MS // 2)
    clock.advance(days=1)
    assert (await balance(of, "bob")).refused is None
    assert await balance(of, "bob", OFFLINE) == UNLIMITED


@pytest.mark.parametrize("seed", range(4))
async def test_calls_on_two_nodes_at_once_exceed_a_limit_by_one(each_database: Database, seed: int):
    chance, clock = random.Random(seed), FakeClock()  # noqa: S311 - chance, not a secret
    caps = {"each": {"day_tokens": 1_000}, "in_all": {"day_tokens": 2_500}}
    nodes = [allowed(each_database, clock, limits=caps) for _ in range(2)]
    spent_by, refused = Counter[str](), 0

    async def work(of: Allowance, who: str) -> None:
        """A few calls, the last of which may break off, and then they are counted."""
        nonlocal refused
        payer = here(of, who)
        account = of.account(payer)
        try:
            for _ in range(chance.randint(1, 4)):
                async with account.call("dear", 50, 150):
                    for _ in range(chance.choice((0, 1, 5))):
                        await asyncio.sleep(0)
                    usage = Usage(50, chance.randint(0, 150))
                    account.replied(Reply(Message("assistant", ()), "end", usage))
                    spent_by[who] += usage.context_tokens
        except LimitReached:
            refused += 1
        spent = money.spent_of(account, payer.person, "s", "chat")
        await each_database.write(lambda tx: [money.add(tx, each, NOON) for each in spent])

    works = [work(chance.choice(nodes), chance.choice(("ada", "bob", "eve"))) for _ in range(30)]
    await asyncio.gather(*works)
    assert refused
    assert max(spent_by.values()) < 1_000 + 200
    assert 2_500 <= spent_by.total() < 2_500 + 200
    assert await each_database.read(lambda tx: records.under(tx, money.RUNNING)) == {}


async def test_what_a_lost_node_was_at_holds_nobody_up_for_long(each_database: Database):
    clock = FakeClock()
    of, other = (
        allowed(each_database, clock, limits={"each": {"day_tokens": 1_000}}) for _ in range(2)
    )
    lost = other.account(here(other))
    await other.hold(lost, "dear", 0, 5_000)
    waiting = asyncio.create_task(of.hold(of.account(here(of)), "dear", 0, 10))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(minutes=10)
    assert await waiting
    assert len(await each_database.read(lambda tx: records.under(tx, money.RUNNING))) == 2
    await each_database.write(lambda tx: money.prune_notices(tx, clock() + money.NOTED_MS + 1))
    assert await each_database.read(lambda tx: records.under(tx, money.RUNNING)) == {}


async def test_a_call_that_is_given_up_while_it_is_charged_holds_nothing(each_database: Database):
    of = allowed(each_database, FakeClock(), limits={"each": {"day_tokens": 1_000}})

    async def work() -> None:
        async with of.account(here(of)).call("dear", 50, 150):
            await asyncio.Event().wait()

    for turns in range(6):
        given_up = asyncio.create_task(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
        assert await each_database.read(lambda tx: records.under(tx, money.RUNNING)) == {}


async def test_nothing_is_asked_where_nothing_is_limited():
    class Untouched:
        pass

    of = allowed(Untouched(), FakeClock())  # pyright: ignore[reportArgumentType]
    assert await balance(of) == UNLIMITED


async def test_what_is_settled_is_asked_once_and_still_counts(each_database: Database):
    clock = FakeClock()
    of = allowed(each_database, clock, limits={"in_all": {"month_tokens": 10_000}})
    sum_ = 0
    for hours in (0, 0.5, 0.5, 1, 3, 30, -20, 25):  # also when the clock is set back
        clock.advance(hours=hours)
        await spend_dear(each_database, Usage(10), clock())
        sum_ += 10
        (found,) = (await balance(of)).standings
        (new,) = (await balance(allowed(each_database, clock, limits=LIMITS))).standings
        assert found.used == new.used == sum_
    assert SETTLED_MS % SLOT_MS == 0


LIMITS = {"in_all": {"month_tokens": 10_000}}


async def test_somebody_can_have_a_limit_of_their_own_and_the_owner_none(each_database: Database):
    clock = FakeClock()
    config: dict[str, Any] = {
        "session": {"owner": ["memory:boss"], "identity_links": {"bobby": ["memory:bob"]}},
        "limits": {
            "each": {"day_tokens": 10},
            "people": {"bobby": {"day_tokens": 1_000}, "memory:eve": {}},
        },
    }
    of = allowed(each_database, clock, **config)
    mosts = {
        name: [each.limit.most for each in (await balance(of, name)).standings]
        for name in ("ada", "bob", "eve", "boss")
    }
    assert mosts == {"ada": [10], "bob": [1_000], "eve": [], "boss": [10]}
    config["limits"]["exempt_owner"] = True
    of = allowed(each_database, clock, **config)
    assert await balance(of, "boss") == UNLIMITED
    joined = replace(here(of, "boss"), is_owner=False)  # an account that /link joined to theirs
    assert [each.limit.most for each in (await of.of(joined)).standings] == [10]
    assert len((await balance(of)).standings) == 1


async def test_a_limit_is_told_once_in_each_of_its_periods(each_database: Database):
    limit = Limit("person", "day", "usd", 1)
    today = LimitStatus(limit, DAY, 0.9)
    tomorrow = LimitStatus(limit, Period("day", DAY.end, DAY.end + DAY_MS), 0.9)

    async def is_first(whom: str, each: LimitStatus, now: int = NOON) -> bool:
        return await each_database.write(lambda tx: money.is_first(tx, whom, each, now))

    assert [await is_first("ada", today), await is_first("ada", today)] == [True, False]
    assert await is_first("bob", today)
    assert await is_first("ada", tomorrow)
    later = NOON + money.KEPT_WHOLE_MS + 1
    await each_database.write(lambda tx: money.prune_notices(tx, later))
    assert await is_first("ada", today)
