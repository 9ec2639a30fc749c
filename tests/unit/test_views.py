"""What is shown, as values: proved here once, whichever door shows it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from zoneinfo import ZoneInfo

import pytest

from bot import money
from bot.agent.models import Usage
from bot.channel import Address, Inbound
from bot.clock import DAY_MS
from bot.config import Config, SessionConfig
from bot.identity import ConversationResolver, Link, MessageOrigin, Policy
from bot.memory.claims import Aging, Claim
from bot.memory.memory import Cleared, Forgotten, Overview, Preview
from bot.memory.search import Hit
from bot.memory.selftest import Asked
from bot.money import Allowance, Prices, Spent
from bot.sessions import links, pairing
from bot.sessions.forgetting import Gone, Held, Mention
from bot.storage import Database, Transaction
from bot.storage.sqlite_sql import SqliteTransaction
from bot.views import memory, people
from bot.views.memory import MemoryStatus
from bot.views.usage import LISTED, UsageViews
from tests.support import NOON, FakeClock

EVE, ADA = ("telegram", "42"), ("telegram", "7")


def asked(tx: Transaction, sender: str, code: str) -> None:
    came = Inbound("telegram", "default", sender, "direct", sender, "1", "hi", 0, sender_name="Eve")
    pairing.ask(tx, came, code, NOON)


# --- people ---------------------------------------------------------------------------------------


def test_everybody_is_shown_once_with_what_the_configuration_and_links_say(tx: SqliteTransaction):
    session = SessionConfig(owner=("telegram:7",), identity_links={"bob": ("discord:1",)})
    for sender, code in (("42", "ABCDEFGH"), ("7", "BCDEFGHJ"), ("9", "CDEFGHJK")):
        asked(tx, sender, code)
    assert people.block(tx, ("telegram", "9"), NOON) is not None
    links.join(tx, Link(("discord", "5"), ADA, Address("discord", "work", "5"), "en"), NOON)
    found = people.people(tx, session, NOON)
    assert [(each.seat, each.code, each.is_own) for each in found.asking] == [
        (EVE, "ABCDEFGH", False),
        (ADA, "BCDEFGHJ", True),
    ]
    assert [each.is_configured for each in found.asking] == [False, True]
    assert [(each.label, each.place, each.root) for each in found.linked] == [
        ("discord:5", "discord (work)", "Eve")
    ]
    assert [(each.seat[1], each.at) for each in found.blocked] == [("9", NOON)]
    let_in = people.approve(tx, session, "telegram", "abcdefgh", NOON + 1, me=False)
    assert isinstance(let_in, people.LetIn)
    (admitted,) = people.people(tx, session, NOON + 1).admitted
    assert (admitted.seat, admitted.at) == (EVE, NOON + 1)


def test_an_account_that_the_configuration_assigns_becomes_nobodys_by_a_code(tx: SqliteTransaction):
    session = SessionConfig(identity_links={"bob": ("telegram:42",)})
    asked(tx, "42", "ABCDEFGH")
    assert people.approve(tx, session, "telegram", "ABCDEFGH", NOON, me=True) == "configured"
    assert people.approve(tx, session, "telegram", "BBBBBBBB", NOON, me=True) == "gone"
    assert pairing.holder(tx, "telegram", "ABCDEFGH", NOON) is not None
    assert isinstance(
        people.approve(tx, session, "telegram", "ABCDEFGH", NOON, me=False), people.LetIn
    )


# --- usage ----------------------------------------------------------------------------------------


async def test_a_month_names_its_dearest_conversations_and_counts_the_others(
    each_database: Database,
):
    config = Config.model_validate(
        {
            "agent": {"timezone": "UTC"},
            "limits": {"each": {"day_tokens": 9}, "in_all": {"day_usd": 1}},
        }
    )
    clock, resolver = FakeClock(), ConversationResolver(Policy.of(config, ZoneInfo("UTC")))
    allowance = Allowance(each_database, resolver, Prices({}), clock)
    views = UsageViews(each_database, clock, allowance)
    ada = resolver.of(MessageOrigin("memory", "default", "ada", "direct", "ada"))

    def spend(tx: Transaction) -> None:
        for number in range(LISTED + 2):
            spent = Spent(ada.person, f"s{number}", "m", "chat", Usage(number + 1))
            money.add(tx, spent, NOON if number % 2 else NOON - DAY_MS)
        money.add(tx, Spent("memory:bob", "s", "m", "chat", Usage(100)), NOON)

    await each_database.write(spend)
    own = await views.month_of(ada, NOON)
    assert own.month.usage.input_tokens == sum(range(1, LISTED + 3))
    assert own.today.usage.input_tokens == 2 + 4 + 6
    assert (own.month.unpriced, own.others) == (("m",), 2)
    assert [each.limit.whose for each in own.limits] == ["person"]  # everybody's is the owner's
    report = await views.of(ada)
    assert [line.runs for line in report.lines["day"]] == [4, 3]
    assert "person" not in report.lines
    everybody = await views.everybodys(ZoneInfo("UTC"))
    assert [line.name for line in everybody.lines["person"]] == ["memory:bob", "memory:ada"]
    assert [each.limit.whose for each in everybody.limits] == ["all"]
    assert [name for name, _ in everybody.limited] == ["memory:bob", "memory:ada"]


# --- memory ---------------------------------------------------------------------------------------


def hit(path: str, first: int, last: int) -> Hit:
    source = "memory" if first else "transcript"
    return Hit("main", path, first, last, 1.0, "- tea\n", source, NOON)


@pytest.mark.parametrize(
    ("found", "where"),
    [
        (hit("memory/a.md", 3, 3), "memory/a.md:3"),
        (hit("memory/a.md", 3, 9), "memory/a.md:3-9"),
        (hit("s1.4", 0, 0), "said 2026-11-21 12:00"),
    ],
)
def test_a_passage_names_its_lines_or_when_it_was_said(found: Hit, where: str):
    assert memory.where_found("en", found, ZoneInfo("UTC")) == where
    assert memory.words_found(found) == ["- tea"]
    assert memory.why_found("en", replace(found, strength=0.0)).endswith("faded")


def test_a_status_says_why_a_way_of_finding_is_off_and_nothing_of_others_notes():
    index = Overview(2, 9, "m", words_off="disabled", vectors_off="no wheel", synced_at=NOON)
    told = MemoryStatus(index, 3, Asked(0, 4, 3), None).lines("en", NOON + 5_000)
    assert [line.split(":")[0] for line in told] == [
        "Memory",
        "Search by words",
        "Search by meaning",
        "Files last checked 5 seconds ago",
        "Nightly self-test, in other words",
        "3 entries shown at the start of conversations have faded; /memory faded lists them",
    ]
    assert "(memory.embedder is off" in told[1]
    assert "(no wheel)" in told[2]


def test_what_forgetting_removes_is_counted_the_same_before_and_after():
    mentions: Sequence[Mention] = [
        Mention(1, "s", (), says=True),
        Mention(2, "s", (0,), says=False),
    ]
    held = Held("tea", (), 2, tuple(mentions), (), ("a",), ("s",), 1, 1, frozenset())
    gone = Gone(list(mentions), ["s"], 1, 1, 1, 1)
    before = memory.would_go(Preview((), held, 2, 1))
    after = memory.went(Forgotten(Cleared(), gone, 2, 1, frozenset(), ()), 0)
    assert {name: after[name] for name in before} == before
    assert after["prompts"] == 1
    assert "1 reminder or task removed" in memory.counted("en", "did", after)
    assert not any("withdrawn" in line for line in memory.counted("en", "did", after))


@pytest.mark.parametrize(
    ("days", "words"),
    [(0, "from today"), (59, "59 days old"), (60, "2 months old"), (730, "2 years old")],
)
def test_an_age_is_told_in_the_unit_that_people_use(days: int, words: str):
    today = date(2026, 11, 21)
    claim = Claim(1, 1, "tea", "owner", said=date.fromordinal(today.toordinal() - days))
    assert memory.age_of("en", claim, today) == words
    assert memory.told_of("en", claim, Aging(today), "main")[0] == words
