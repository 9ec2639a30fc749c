"""What may still be used: decided over values, and asked of both databases."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.meter import added
from bot.agent.models import Usage
from bot.clock import DAY_MS
from bot.config import OFFLINE, CapsConfig, Config
from bot.identity import ConversationResolver, MessageOrigin, Policy
from bot.identity.zone import local_zone
from bot.money import allowance, counts, limits
from bot.money.allowance import SETTLED_MS, UNLIMITED, Allowance
from bot.money.counts import SLOT_MS, Spent
from bot.money.limits import Balance, Limit, Standing
from bot.money.periods import Period, period
from bot.money.prices import LISTED, Price, Prices
from bot.storage import Database
from tests.support import NOON, FakeClock

PRICES = Prices({"dear": Price(10, 10, 10, 10), "cheap": Price(1, 1, 1, 1)})
tokens = st.integers(0, 10**7)
usages = st.builds(Usage, tokens, tokens, tokens, tokens)
used = st.dictionaries(st.sampled_from(["dear", "cheap", "new", OFFLINE]), usages, max_size=4)
all_limits = st.builds(
    Limit,
    st.sampled_from(["person", "all"]),
    st.sampled_from(["day", "month"]),
    st.sampled_from(["usd", "tokens"]),
    st.floats(0.01, 10**6),
)
DAY, MONTH = period("day", NOON, UTC), period("month", NOON, UTC)


def standing(limit: Limit, what: dict[str, Usage]) -> Standing:
    return limits.standing(limit, DAY if limit.span == "day" else MONTH, what, PRICES)


# --- the decision --------------------------------------------------------------------------------


@given(st.lists(st.tuples(all_limits, used), max_size=5))
def test_a_turn_is_refused_exactly_when_a_limit_is_used_up(
    found: list[tuple[Limit, dict[str, Usage]]],
):
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
    (after,) = before.after({model: more}, PRICES).standings
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
    assert before.after({OFFLINE: more}, PRICES) == before


@given(st.floats(0.01, 10**6), st.floats(0, 2))
def test_a_percentage_never_says_more_than_is_so(most: float, share: float):
    each = Standing(Limit("person", "day", "usd", most), DAY, most * share)
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
    nothing_known = limits.amount("usd", {"new": Usage(10**6)}, Prices({}))
    assert nothing_known == max(
        each.input for models in LISTED.values() for each in models.values()
    )


@pytest.mark.parametrize("option", ["day_usd", "day_tokens", "month_usd", "month_tokens"])
def test_each_option_is_a_limit_of_its_own(option: str):
    found = limits.limits_of(CapsConfig.model_validate({option: 7}), "all")
    wanted = [("all", option, 7)]
    assert [(each.whose, f"{each.span}_{each.unit}", each.most) for each in found] == wanted
    assert limits.limits_of(CapsConfig(), "all") == ()


# --- asked of the counts -------------------------------------------------------------------------


def allowed(database: Database, clock: FakeClock, **config: object) -> Allowance:
    whole = Config.model_validate({"agent": {"timezone": "UTC"}, **config})
    resolver = ConversationResolver(Policy.of(whole, local_zone(whole)))
    return Allowance(whole.limits, database, resolver, PRICES, clock)


async def balance(of: Allowance, sender: str = "ada", model: str = "dear", **where: str) -> Balance:
    origin = MessageOrigin("memory", "default", sender, "direct", sender)
    resolver = of._resolver  # pyright: ignore[reportPrivateUsage]
    return await of.of(resolver.of(origin), model)


async def spend(database: Database, amount: Usage, at: int, sender: str = "ada") -> None:
    spent = Spent(f"memory:{sender}", "s", "dear", "chat", amount)
    await database.write(lambda tx: counts.add(tx, spent, at))


async def test_a_person_and_everybody_have_limits_of_their_own(each_database: Database):
    clock = FakeClock()
    caps = {"in_all": {"month_tokens": 1_000}, "each": {"day_tokens": 100, "day_usd": 5}}
    of = allowed(each_database, clock, limits=caps)
    await spend(each_database, Usage(60), NOON - DAY_MS)
    await spend(each_database, Usage(30), NOON)
    await spend(each_database, Usage(200), NOON, "bob")
    found = {(s.limit.whose, s.limit.unit): s.used for s in (await balance(of)).standings}
    assert found == {("person", "tokens"): 30, ("person", "usd"): 0.0003, ("all", "tokens"): 290}
    assert (await balance(of)).refused is None
    refused = (await balance(of, "bob")).refused
    assert refused is not None
    assert (refused.limit.span, refused.period.end) == ("day", NOON + DAY_MS // 2)
    clock.advance(days=1)
    assert (await balance(of, "bob")).refused is None
    assert await balance(of, "bob", OFFLINE) == UNLIMITED


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
        await spend(each_database, Usage(10), clock())
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
    assert len((await balance(of)).standings) == 1


async def test_a_limit_is_told_once_in_each_of_its_periods(each_database: Database):
    limit = Limit("person", "day", "usd", 1)
    today = Standing(limit, DAY, 0.9)
    tomorrow = Standing(limit, Period("day", DAY.end, DAY.end + DAY_MS), 0.9)

    async def is_first(whom: str, each: Standing, now: int = NOON) -> bool:
        return await each_database.write(lambda tx: allowance.is_first(tx, whom, each, now))

    assert [await is_first("ada", today), await is_first("ada", today)] == [True, False]
    assert await is_first("bob", today)
    assert await is_first("ada", tomorrow)
    later = NOON + counts.KEPT_WHOLE_MS + 1
    await each_database.write(lambda tx: allowance.prune(tx, later))
    assert await is_first("ada", today)
