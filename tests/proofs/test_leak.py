"""Whatever anybody asks, in whatever way: nobody is shown what is another's.

Canaries stand in everybody's conversations and files. Hypothesis drives the people around them, the
model is the worst there can be (it asks for anything and repeats all it is shown), and everything
that comes out is scanned: prompts, replies, drafts, log lines, HTTP answers, histories. Who may see
which canary is decided by `tests/proofs/canaries.py`, from the documentation alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bot.channel import Address, Inbound
from bot.gateway import pairing
from bot.i18n import text
from bot.identity import Books, ConversationResolver, Link, Policy, access
from bot.identity.view import MemoryView, folder_name
from bot.memory.layout import Target
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel
from tests.fakes import postgres
from tests.proofs.canaries import (
    BYSTANDERS,
    EVERYONE,
    LINKER,
    MEMBERS,
    PEOPLE,
    QUESTIONS,
    TOPICS,
    Leak,
    Plan,
    Rules,
    Setting,
    Who,
    Wiretap,
    World,
    hostile,
)
from tests.support import NOON, make_config, running, until

STEP_SECONDS = 60.0  # until a step counts as stuck
WHO = st.sampled_from((*EVERYONE, *MEMBERS))
PERSON = st.sampled_from(EVERYONE)
MEMBER = st.sampled_from(MEMBERS)
IN_ROOMS = st.sampled_from((*MEMBERS, *BYSTANDERS))
TOPIC = st.integers(0, len(QUESTIONS) - 1)
HOSTILE = st.integers(0, 1_000)  # which of the hostile names
DM_SCOPES = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")
KINDS = ("group", "channel", "thread", "dm", "Direct", "supergroup", "", "direct ")
LINKS = st.sampled_from(
    [
        (),
        (("ada", ("memory:ada", "other:eve")),),
        (("bob", ("memory:bob", "nct:bob")), ("ada", ("other:ada", "memory:Ada"))),
        (("boss", ("memory:boss", "nct:chief")),),
        # A name that means something elsewhere is still only a name.
        (("main", ("memory:bob", "other:eve")),),
        (("shared", ("nct:bob",)), ("people", ("memory:@ada",))),
    ]
)
OWNERS = st.sampled_from([(), ("memory:boss",), ("memory:boss", "other:ada")])
RULE = st.one_of(
    st.tuples(
        st.sampled_from(["allow", "deny"]),
        st.just("chat_type"),
        st.sampled_from(["direct", "group", "thread"]),
    ),
    st.tuples(
        st.sampled_from(["allow", "deny"]),
        st.just("channel"),
        st.sampled_from(["memory", "other", "nct"]),
    ),
    st.tuples(
        st.sampled_from(["allow", "deny"]),
        st.sampled_from(["sender", "chat"]),
        st.sampled_from(["bob", "eve", "boss", "den", "cave"]),
    ),
    st.tuples(st.sampled_from(["allow", "deny"]), st.just("account"), st.just("second")),
    st.tuples(
        st.sampled_from(["allow", "deny"]),
        st.just("key_prefix"),
        st.sampled_from(["agent:main:main", "agent:main:memory:", "agent:main:dm:", "agent:x"]),
    ),
    st.tuples(st.sampled_from(["allow", "deny"]), st.just(""), st.just("")),
)
# Mostly open, or there would be little to protect.
SCOPE = st.one_of(
    st.just(Rules()),
    st.just(Rules("allow", ())),
    st.builds(Rules, st.sampled_from(["allow", "deny"]), st.lists(RULE, max_size=3).map(tuple)),
)
OWN_SCOPE = st.builds(
    Rules, st.sampled_from(["", "", "allow", "deny"]), st.lists(RULE, max_size=2).map(tuple)
)
SETTING = st.builds(
    Setting,
    dm_scope=st.sampled_from(DM_SCOPES),
    owner=OWNERS,
    links=LINKS,
    scope=SCOPE,
    channel_scopes=st.lists(
        st.tuples(st.sampled_from(["memory", "other", "nct"]), OWN_SCOPE),
        max_size=2,
        unique_by=lambda item: item[0],
    ).map(tuple),
    account_scopes=st.one_of(st.just(()), OWN_SCOPE.map(lambda rules: (("second", rules),))),
    embedder=st.sampled_from(["none", "hash", "hash"]),
)


class Strangers(RuleBasedStateMachine):
    """Everybody at once around one engine, which is started once and now and then again."""

    totals: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = tempfile.TemporaryDirectory()
        self.stack = ExitStack()
        self.tap = self.stack.enter_context(Wiretap().listening())
        self.world = World(Path(self.home.name), Setting(), self.tap, self.database())
        self.started = False

    def database(self) -> str:
        """The URL of an empty database; empty when notes are files."""
        return ""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(work, STEP_SECONDS))

    @initialize(setting=SETTING)
    def begin(self, setting: Setting) -> None:
        self.world.setting = setting
        self.world.plant_everywhere()
        self.run(self.world.start())
        self.started = True
        for who in (*PEOPLE, *MEMBERS):
            token = self.world.canary(said_by=who)
            self.run(self.world.say(who, self.world.sentence(token, len(token))))
        self.run(self.world.index_catches_up())

    # --- what people do ---

    @rule(who=WHO, topic=TOPIC, keep=st.sampled_from(["", "note", "MEMORY.md", "USER.md"]))
    def someone_tells_a_secret(self, who: Who, topic: int, keep: str) -> None:
        self.run(tells(self.world, who, topic, keep))

    @rule(who=WHO, topic=TOPIC, tool=st.sampled_from(["", "memory_search", "transcript_search"]))
    def someone_asks(self, who: Who, topic: int, tool: str) -> None:
        self.run(asks(self.world, who, topic, tool))

    @rule(who=WHO, topic=TOPIC)
    def someone_begins_anew_with_a_question(self, who: Who, topic: int) -> None:
        self.run(self.world.say(who, f"/new {QUESTIONS[topic]}", Plan(who)))

    @rule(who=WHO, which=st.lists(HOSTILE, min_size=4, max_size=8))
    def someones_model_reads_what_it_should_not(self, who: Who, which: list[int]) -> None:
        self.run(reads(self.world, who, which))

    @rule(who=WHO, which=HOSTILE, how=st.sampled_from(["add", "section", "replaces"]))
    def someones_model_writes_where_it_should_not(self, who: Who, which: int, how: str) -> None:
        self.run(writes(self.world, who, which, how))

    @rule(who=WHO, topic=TOPIC)
    def someones_model_keeps_all_it_sees(self, who: Who, topic: int) -> None:
        self.run(self.world.say(who, QUESTIONS[topic], Plan(who, keeps=True)))

    @rule(
        who=WHO,
        command=st.sampled_from(
            [
                *("/new", "/reset", "/undo", "/memory", "/status", "/whoami", "/help", "/start"),
                *("/stop", "/context detail", "/reminders", "/activation"),
            ]
        ),
    )
    def someone_gives_a_command(self, who: Who, command: str) -> None:
        self.run(self.world.say(who, command))

    @rule(who=WHO, which=HOSTILE, topic=TOPIC, command=st.sampled_from(["show", "search", "who"]))
    def someone_asks_memory_itself(self, who: Who, which: int, topic: int, command: str) -> None:
        self.run(asks_memory(self.world, who, which, topic, command))

    @rule(who=WHO, topic=TOPIC, sure=st.booleans())
    def someone_forgets(self, who: Who, topic: int, sure: bool) -> None:  # noqa: FBT001
        self.run(forgets(self.world, who, topic, sure=sure))

    @rule(who=WHO, where=st.sampled_from(["unknown command", "argument", "path"]))
    def someone_types_a_secret_where_it_does_not_belong(self, who: Who, where: str) -> None:
        self.run(mistypes(self.world, who, where))

    @rule(who=PERSON, kind=st.sampled_from(KINDS), topic=TOPIC, command=st.booleans())
    def something_is_said_elsewhere(
        self,
        who: Who,
        kind: str,
        topic: int,
        command: bool,  # noqa: FBT001
    ) -> None:
        text = f"/memory search {QUESTIONS[topic]}" if command else QUESTIONS[topic]
        self.run(self.world.elsewhere(who, kind, text))

    # --- rooms, and people with several accounts ---

    @rule(who=IN_ROOMS, topic=TOPIC)
    def somebody_says_something_to_others_in_a_room(self, who: Who, topic: int) -> None:
        self.run(mutters(self.world, who, topic))

    @rule(who=MEMBER, topic=TOPIC, keeps=st.booleans())
    def somebody_asks_in_a_room_after_others_talked(
        self,
        who: Who,
        topic: int,
        keeps: bool,  # noqa: FBT001
    ) -> None:
        self.run(mutters(self.world, who, topic))
        self.run(self.world.say(who, QUESTIONS[topic], Plan(who, keeps=keeps)))

    @rule(who=MEMBER, wish=st.sampled_from(["mention", "always", "mention"]))
    def somebody_chooses_when_a_room_is_answered(self, who: Who, wish: str) -> None:
        self.run(self.world.activate(who, wish))

    @rule(who=PERSON, first=PERSON)
    def somebody_joins_two_accounts(self, who: Who, first: Who) -> None:
        self.run(joins(self.world, who, first))

    @rule(who=PERSON)
    def somebody_parts_them_again(self, who: Who) -> None:
        self.run(self.world.part(who))

    @rule(several=st.lists(st.tuples(WHO, TOPIC), min_size=2, max_size=4))
    def several_ask_at_once(self, several: list[tuple[Who, int]]) -> None:
        asked = [
            (who, QUESTIONS[topic], Plan(who, [("memory_search", {"query": QUESTIONS[topic]})]))
            for who, topic in several
        ]
        self.run(self.world.together(asked))

    # --- what happens around them ---

    @rule(who=WHO, topic=TOPIC, name=st.sampled_from(["MEMORY.md", "memory/2026-11-21.md"]))
    def someone_edits_a_file(self, who: Who, topic: int, name: str) -> None:
        if who != LINKER:
            self.world.plant(self.world.setting.space(who), name, topic)
        self.run(self.world.index_catches_up())
        self.world.counts["steps"] += 1

    @rule(hours=st.integers(-30, 60))
    def the_clock_jumps(self, hours: int) -> None:
        self.world.clock.advance(hours=hours)
        self.world.counts["steps"] += 1

    @rule(topic=TOPIC)
    def the_page_is_asked(self, topic: int) -> None:
        self.run(asks_the_page(self.world, topic))

    @rule(who=WHO)
    def a_history_is_drawn_again(self, who: Who) -> None:
        self.run(self.world.redraw(who))
        self.world.counts["steps"] += 1

    @rule(damage=st.booleans(), who=WHO, topic=TOPIC)
    def the_index_is_lost(self, damage: bool, who: Who, topic: int) -> None:  # noqa: FBT001
        self.run(loses_the_index(self.world, who, topic, damage=damage))

    @rule(scope=st.one_of(st.none(), SCOPE))
    def it_is_started_again(self, scope: Rules | None) -> None:
        self.run(self.world.restart(**({"scope": scope} if scope else {})))
        self.world.counts["restarts"] += 1

    # --- what must always be true ---

    @invariant()
    def nobody_was_shown_what_is_anothers(self) -> None:
        if self.started:
            self.run(self.world.probe())
            self.world.scan()

    def teardown(self) -> None:
        try:
            if self.started:
                self.run(everybody_is_asked_once_more(self.world))
                self.run(self.world.stop())
        finally:
            Strangers.totals += self.world.counts
            self.stack.close()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.home.cleanup()


# --- what people do, also in the tests of the scanner ---------------------------------------------


async def tells(world: World, who: Who, topic: int, keep: str) -> None:
    space = world.setting.space(who)
    # A folder that is a link is nobody's: nothing can be kept in it.
    kept = bool(keep) and world.setting.sees_memory(who) and who != LINKER
    token = world.canary(space=space if kept else "", said_by=who)
    path = {} if keep == "note" else {"path": keep}
    write = [("memory_write", {"text": world.sentence(token, topic), **path})] if keep else []
    await world.say(who, f"remember: {world.sentence(token, topic)}", Plan(who, write))


async def asks(world: World, who: Who, topic: int, tool: str) -> None:
    question = QUESTIONS[topic % len(QUESTIONS)]
    tools = [(tool, {"query": question, "limit": 20})] if tool else []
    await world.say(who, question, Plan(who, tools))


async def reads(world: World, who: Who, which: list[int]) -> None:
    names = hostile(world.setting)
    tools: list[tuple[str, dict[str, Any]]] = [
        ("memory_get", {"path": names[number % len(names)]}) for number in which
    ]
    tools[0][1]["from"], tools[1][1]["lines"] = 2, 120
    tools.append(("memory_search", {"query": tools[2][1]["path"], "limit": 20}))
    tools.append(("memory_get", {"path": "MEMORY.md", "space": "main"}))
    tools.append(("transcript_search", {"query": '" OR key:* --', "person": "main"}))
    await world.say(who, "look around", Plan(who, tools))


async def writes(world: World, who: Who, which: int, how: str) -> None:
    """Whatever is taken is the writer's; whatever lands elsewhere shows up there."""
    names = hostile(world.setting)
    space = world.setting.space(who) if world.setting.sees_memory(who) else ""
    token = world.canary(space=space, said_by=who)
    more = {"section": "Plans"} if how == "section" else {}
    more = {"replaces": TOPICS[which % len(TOPICS)]} if how == "replaces" else more
    path = names[which % len(names)]
    write = ("memory_write", {"text": world.sentence(token, which), "path": path, **more})
    await world.say(who, f"write {token} there", Plan(who, [write]))


async def asks_memory(world: World, who: Who, which: int, topic: int, command: str) -> None:
    names = hostile(world.setting)
    question = QUESTIONS[topic % len(QUESTIONS)]
    words = {
        "show": f"/memory show {names[which % len(names)]}",
        "search": f"/memory search {question}",
        "who": f"/whosees {('zq', TOPICS[topic % len(TOPICS)], 'is')[which % 3]}",
    }
    await world.say(who, words[command])


async def forgets(world: World, who: Who, topic: int, *, sure: bool) -> None:
    await world.say(who, f"/memory forget {TOPICS[topic % len(TOPICS)]}")
    if sure:
        await world.say(who, "/memory forget yes")


async def mistypes(world: World, who: Who, where: str) -> None:
    token = world.canary(said_by=who)
    typed = {
        "unknown command": f"/{token} {token}",
        "argument": f"/model {token}",
        "path": f"/memory show memory/{token}.md",
    }
    await world.say(who, typed[where])


async def mutters(world: World, who: Who, topic: int) -> None:
    """Talk in a room; somebody who may not talk to the bot there says something as well."""
    await world.mutter(who, topic)
    if who.room == "cave":
        await world.mutter(BYSTANDERS[topic % len(BYSTANDERS)], topic)


async def joins(world: World, who: Who, first: Who) -> None:
    # Whose folder is a link to somebody else's has no memory to share.
    if LINKER not in (who, first) and who.id != first.id:
        await world.join(who, first)


async def asks_the_page(world: World, topic: int) -> None:
    ada = world.setting.space(Who("memory", "ada"))
    spaces = ("", "main", "shared", "people/ada", ada, f"{ada}#private", "main#private", "rooms")
    others = ("talk:main", "talk:memory:ada", "..", "people/../", "MAIN", "*", "rooms/memory-den")
    await world.ask_the_page(topic, (*spaces, *others))
    world.counts["steps"] += 1


async def loses_the_index(world: World, who: Who, topic: int, *, damage: bool) -> None:
    for path in (world.folder / "index").glob("index.db"):
        if damage:
            path.write_bytes(b"SQLite format 3\x00" + b"\x07" * 5_000)
        else:
            path.unlink()
    await asks(world, who, topic, "memory_search")
    await world.index_catches_up()


async def everybody_is_asked_once_more(world: World) -> None:
    await world.index_catches_up()
    for topic, who in enumerate((*EVERYONE, *MEMBERS)):
        await asks(world, who, topic, "memory_search")
        await world.redraw(who)
    await asks_the_page(world, 0)


async def tour(world: World) -> None:
    """Everything that people do, once, in an order in which each finds something."""
    ada, bob, eve, boss = (
        Who(channel, sender)
        for channel, sender in (
            *(("memory", "ada"), ("memory", "bob")),
            *(("other", "eve"), ("memory", "boss")),
        )
    )
    for number, who in enumerate((ada, boss, bob, eve)):
        await tells(world, who, number, ("note", "MEMORY.md", "", "USER.md")[number])
    await world.index_catches_up()
    for number, who in enumerate((bob, eve, ada, LINKER)):
        await asks(world, who, number, "memory_search")
        await asks(world, who, number, "transcript_search")
        await world.say(who, f"/new {QUESTIONS[number]}", Plan(who))
        for first in range(0, len(hostile(world.setting)), 12):
            await reads(world, who, list(range(first, first + 12)))
        for number_of in range(0, 60, 7):
            await asks_memory(world, who, number_of, number, "show")
        await writes(world, who, number * 3, "add")
        await asks_memory(world, who, number, number, "search")
        await asks_memory(world, who, number, number, "who")
        await mistypes(world, who, "unknown command")
        await forgets(world, who, number, sure=number == 1)
    for kind in KINDS:
        await world.elsewhere(eve, kind, QUESTIONS[0])
    await tour_of_rooms(world)
    await tour_of_links(world)
    for who in EVERYONE:
        await world.redraw(who)
    await world.probe()
    await asks_the_page(world, 1)
    world.clock.advance(days=1)
    world.scan()
    await world.restart()
    await loses_the_index(world, eve, 2, damage=True)
    await world.together([(who, QUESTIONS[3], Plan(who)) for who in (ada, bob, eve, boss)])
    await world.together([(who, QUESTIONS[4], Plan(who)) for who in MEMBERS])
    await everybody_is_asked_once_more(world)


async def tour_of_rooms(world: World) -> None:
    """Talk to others and to the bot, in each room, by everybody who is there."""
    for number, who in enumerate(MEMBERS):
        await tells(world, who, number, ("note", "ROOM.md", "")[number % 3])
        await mutters(world, who, number)
    await world.index_catches_up()
    for number, who in enumerate(MEMBERS):
        await mutters(world, who, number)
        await asks(world, who, number, ("memory_search", "transcript_search")[number % 2])
        await reads(world, who, list(range(number * 5, number * 5 + 8)))
        await asks_memory(world, who, number, number, "search")
        await asks_memory(world, who, number, number, "who")
        await asks_memory(world, who, number * 5, number, "show")
        await mistypes(world, who, "unknown command")
        for command in ("/whoami", "/status", "/context detail", "/memory", "/link", "/unlink"):
            await world.say(who, command)
        await world.activate(who, "always")
        await mutters(world, who, number)
        await world.activate(who, "mention")
        await world.say(who, f"/new {QUESTIONS[number % len(QUESTIONS)]}", Plan(who, keeps=True))
        await world.redraw(who)
    await forgets(world, MEMBERS[1], 1, sure=True)
    world.scan()


async def tour_of_links(world: World) -> None:
    """Join accounts, talk with each, part them, and talk again."""
    bob, eve, other_ada = Who("memory", "bob"), Who("other", "eve"), Who("other", "ada")
    for member, first, thief in ((MEMBERS[0], bob, eve), (MEMBERS[1], eve, other_ada)):
        await world.expose(first, member, thief)
        await asks(world, thief, 1, "transcript_search")
    world.scan()
    for who, first in ((other_ada, bob), (eve, Who("memory", "boss")), (bob, other_ada)):
        await joins(world, who, first)
        for number, each in enumerate((who, first)):
            await tells(world, each, number, "MEMORY.md")
            await asks(world, each, number, "transcript_search")
        await world.index_catches_up()
        for number, each in enumerate((first, who)):
            await asks(world, each, number, "memory_search")
            await world.say(each, f"/new {QUESTIONS[number]}", Plan(each))
    world.scan()
    for who in (other_ada, eve):
        await world.part(who)
        await tells(world, who, 2, "MEMORY.md")
    await world.index_catches_up()
    for who in (other_ada, bob, eve, Who("memory", "boss")):
        await asks(world, who, 2, "memory_search")
        await asks(world, who, 3, "transcript_search")
        await world.say(who, f"/new {QUESTIONS[2]}", Plan(who))
        await world.redraw(who)
    world.scan()


async def take_the_tour(folder: Path, setting: Setting, url: str = "") -> Counter[str]:
    with Wiretap().listening() as tap:
        world = World(folder, setting, tap, url)
        world.plant_everywhere()
        await world.start()
        try:
            await tour(world)
            world.scan()
        finally:
            await world.stop()
    return world.counts


# --- the proofs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_nobody_is_shown_what_is_anothers():
    Strangers.totals = Counter()
    run_state_machine_as_test(
        Strangers,
        settings=settings(
            max_examples=20,
            stateful_step_count=150,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],  # a run is long; shrinking would take an hour
            suppress_health_check=list(HealthCheck),
        ),
    )
    totals = Strangers.totals
    print("; ".join(f"{count} {what}" for what, count in sorted(totals.items())), "; 0 sightings")
    assert totals["steps"] >= 3_000
    assert totals["rightly seen"] > 20_000  # what may be seen is seen, or nothing was tried
    assert all(totals[kind] > 500 for kind in ("prompts", "replies", "drafts", "answers"))
    assert totals["log lines"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("dm_scope", DM_SCOPES)
async def test_every_scope_of_direct_chats_takes_the_tour(tmp_path: Path, dm_scope: str):
    counts = await take_the_tour(
        tmp_path, Setting(dm_scope, owner=("memory:boss",), embedder="hash")
    )
    assert counts["rightly seen"] > 500


@pytest.mark.slow
async def test_rooms_that_have_a_memory_take_the_tour(tmp_path: Path):
    setting = Setting(owner=("memory:boss",), scope=Rules("allow", ()), embedder="hash")
    counts = await take_the_tour(tmp_path, setting)
    assert counts["rightly seen"] > 500
    assert counts["links"] >= 2
    assert counts["codes void"] == 2


@pytest.mark.slow
async def test_with_the_local_embedder_and_everybody_linked_somehow(tmp_path: Path):
    links = (("ada", ("memory:ada", "nct:bob")), ("main", ("memory:bob", "other:eve")))
    setting = Setting(owner=("memory:boss",), links=links, embedder="local")
    counts = await take_the_tour(tmp_path, setting)
    assert counts["rightly seen"] > 500


class SharedStrangers(Strangers):
    """The same where notes are rows of a PostgreSQL."""

    admin_url: ClassVar = ""

    def database(self) -> str:
        """One for each run."""
        return self.stack.enter_context(postgres.a_database(self.admin_url))


@pytest.mark.slow
def test_nobody_is_shown_rows_that_are_anothers(postgres_admin_url: str):
    Strangers.totals, SharedStrangers.admin_url = Counter(), postgres_admin_url
    run_state_machine_as_test(
        SharedStrangers,
        settings=settings(
            max_examples=2,
            stateful_step_count=60,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    totals = Strangers.totals
    print("; ".join(f"{count} {what}" for what, count in sorted(totals.items())), "; 0 sightings")
    assert totals["steps"] >= 100
    assert totals["rightly seen"] > 500


@pytest.mark.slow
async def test_a_memory_of_rows_takes_the_tour(tmp_path: Path, postgres_url: str):
    setting = Setting(owner=("memory:boss",), scope=Rules("allow", ()), embedder="hash")
    counts = await take_the_tour(tmp_path, setting, postgres_url)
    assert counts["rightly seen"] > 500
    assert not list(tmp_path.rglob("*.md"))


# --- what changes between a message and its turn --------------------------------------------------

ADAS, EVES, MAINS, OLD, NEW = (f"zq{word}z" for word in ("ada", "eve", "main", "old", "new"))
KEPT = {
    "MEMORY.md": MAINS,
    f"people/{folder_name('memory:ada')}/MEMORY.md": ADAS,
    f"people/{folder_name('memory:eve')}/MEMORY.md": EVES,
    "people/circle/MEMORY.md": ADAS,
    f"rooms/{folder_name('memory-old')}/ROOM.md": OLD,
    f"rooms/{folder_name('memory-new')}/ROOM.md": NEW,
}
SHOWN = re.compile("zq[a-z]+z")
REFUSED = frozenset({"refused"})
LINK = Link(("memory", "eve"), ("memory", "ada"), Address("memory", "default", "eve"), "en")
PAIRED = ("memory", "default", "eve")
OPEN = {"default": "allow", "rules": ()}
ROOMS = {"group_policy": "open", "require_mention": False}
PAIRING = {"dm_policy": "pairing", "allow_from": ()}


@dataclass(frozen=True)
class Change:
    """What changes while a message waits, and the canaries its turn is shown without and with it.

    `before` and `after` are sections of the configuration; one that stays is left out. `books`
    are what people chose before, `chosen` makes of them what they choose then.
    """

    shown: frozenset[str]
    then: frozenset[str]
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] | None = None
    books: Books = field(default_factory=Books)
    chosen: Callable[[Books], Books] = lambda books: books
    where: Mapping[str, Any] = field(default_factory=dict)


def only(*canaries: str) -> frozenset[str]:
    return frozenset(canaries)


ROOM = {"chat": "new", "chat_type": "group", "mentions_bot": True}
CHANGES: Mapping[str, Change] = {
    "parted": Change(
        only(ADAS), only(EVES), books=Books((LINK,)), chosen=lambda books: replace(books, links=())
    ),
    "joined": Change(only(EVES), only(ADAS), chosen=lambda books: replace(books, links=(LINK,))),
    "revoked": Change(
        *(only(EVES), REFUSED, {"channels": {"memory": PAIRING}}),
        books=Books(paired=frozenset({PAIRED})),
        chosen=lambda books: replace(books, paired=frozenset()),
    ),
    "no owner any more": Change(
        only(MAINS), only(EVES), {"session": {"owner": ("memory:eve",)}}, {}
    ),
    "the owner now": Change(only(EVES), only(MAINS), {}, {"session": {"owner": ("memory:eve",)}}),
    "no name any more": Change(
        *(only(ADAS), only(EVES), {"session": {"identity_links": {"circle": ("memory:eve",)}}}, {}),
    ),
    "memory closed": Change(only(EVES), only(), {}, {"scope": {"rules": ({"action": "deny"},)}}),
    "not let in any more": Change(
        *(only(EVES), REFUSED, {}),
        {"channels": {"memory": {"dm_policy": "allowlist", "allow_from": ()}}},
    ),
    "not answered any more": Change(only(EVES), REFUSED, {}, {"send_policy": {"default": "deny"}}),
    "a room that moved": Change(
        *(only(NEW), only(OLD), {"scope": OPEN, "channels": {"memory": ROOMS}}),
        chosen=lambda books: books.with_moved(("memory", "default", "new"), "old"),
        where=ROOM,
    ),
    "a room that is closed": Change(
        *(only(NEW), REFUSED, {"scope": OPEN, "channels": {"memory": ROOMS}}),
        {"scope": OPEN, "channels": {"memory": {"group_policy": "disabled"}}},
        where=ROOM,
    ),
}


async def approve(folder: Path, *who: str) -> None:
    """Let somebody in, as the command line does before the program is started."""
    database = await SqliteDatabase.open(folder / "confidant.db")
    inbound = Inbound(*who[:2], who[2], "direct", who[2], "m", "hi", NOON)
    await database.write(lambda tx: pairing.ask(tx, inbound, "ABCDEFGH", NOON))
    assert await database.write(lambda tx: pairing.approve(tx, who[0], "ABCDEFGH", NOON))
    await database.close()


async def turn_after(folder: Path, change: Change, *, changes: bool) -> frozenset[str]:
    """The canaries that a turn is shown whose message waited while something changed."""
    for name, canary in KEPT.items():
        path = folder / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"- a plan is {canary}\n", "utf-8")
    for channel, account, sender in change.books.paired:
        await approve(folder, channel, account, sender)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(folder, model=model, **change.before) as engine:
        resolver = engine.app.resolver
        resolver.read(change.books)
        await engine.say("hold", sender="eve", **change.where)
        await model.started.wait()
        await engine.say("and now?", sender="eve", **change.where)
        if changes:
            if change.after is not None:
                config, _ = make_config(folder, **change.after)
                resolver.configure(Policy.of(config, resolver.policy.zone))
            resolver.read(change.chosen(resolver.now.books))
        model.gate.set()
        refused = engine.app.metrics.turns.labels("refused")
        await until(lambda: len(model.requests) == 2 or refused._value.get() == 1)
        if len(model.requests) < 2:
            return REFUSED
        return frozenset(SHOWN.findall(model.requests[1].system))


@pytest.mark.parametrize("name", CHANGES)
async def test_a_turn_is_shown_what_may_be_seen_when_it_begins(tmp_path: Path, name: str):
    change = CHANGES[name]
    assert await turn_after(tmp_path / "as it was", change, changes=False) == change.shown
    assert await turn_after(tmp_path / "changed", change, changes=True) == change.then


async def test_a_turn_speaks_the_language_and_lives_by_the_clock_of_when_it_begins(
    tmp_path: Path,
):
    model = ScriptedModel(script=lambda _request: "", gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        resolver = engine.app.resolver
        await engine.say("hold")
        await until(lambda: len(model.requests) == 1)
        await engine.say("and now?")
        config, _ = make_config(tmp_path, agent={"language": "zh"})
        resolver.configure(Policy.of(config, ZoneInfo("Asia/Shanghai")))
        model.gate.set()
        await engine.channel.wait_sent(2)
        last = "".join(block.text for block in model.requests[1].messages[-1].blocks)
        assert "12:00" in "".join(b.text for b in model.requests[0].messages[-1].blocks)
        assert "20:00" in last
        assert engine.sent_to("ada")[1] == text("zh", "turn.empty")


@pytest.mark.parametrize("name", CHANGES)
async def test_a_conversation_that_is_not_resolved_again_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(ConversationResolver, "renewed", lambda _self, conversation: conversation)
    change = CHANGES[name]
    assert await turn_after(tmp_path, change, changes=True) == change.shown != change.then


# --- the scanner can fail -------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def everybody_is_ada(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    view_for = conversation.view_for

    def leaky(config: Any, subject: Any, **known: Any) -> MemoryView:
        known["people"] = ("memory:ada",)
        return view_for(config, subject, **known)

    patch.setattr(conversation, "view_for", leaky)


def groups_count_as_direct(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(access, "decide", lambda *_args, **_kwargs: access.AccessDecision.ALLOW)


def private_files_come_without_a_view(patch: pytest.MonkeyPatch) -> None:
    from bot.memory import files

    whole = files.SpaceFiles._whole
    root = Target("MEMORY.md", (), "MEMORY.md")
    patch.setattr(files.SpaceFiles, "_whole", lambda self, _target: whole(self, root))


def searches_look_everywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import recall
    from bot.agent.tools import search
    from bot.memory.index.queries import FileReader

    def everything(self: FileReader, _partitions: Any) -> Any:
        names = [str(row[0]) for row in self._run("SELECT name FROM partitions@")]
        return scope(self, names)

    scope = FileReader.scope
    patch.setattr(FileReader, "scope", everything)
    for module in (recall, search):
        patch.setattr(module, "may_see", lambda _view, _hit: True)


def rows_are_searched_everywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import recall
    from bot.agent.tools import search
    from bot.memory.index.row_reader import RowReader

    def everything(self: RowReader, tx: Any, _partitions: Any) -> Any:
        names = [str(row[0]) for row in tx.execute("SELECT name FROM memory_partitions")]
        return scope(self, tx, names)

    scope = RowReader._scope
    patch.setattr(RowReader, "_scope", everything)
    for module in (recall, search):
        patch.setattr(module, "may_see", lambda _view, _hit: True)


def names_lead_anywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.memory import layout

    def leaky(_view: MemoryView, path: str, **_known: object) -> Target:
        *folders, name = [part for part in path.split("/") if part not in {"", ".", ".."}]
        return Target(path, tuple(folders), name)

    patch.setattr(layout, "resolve", leaky)


def links_are_followed(patch: pytest.MonkeyPatch) -> None:
    import os

    from bot.memory import disk

    for name in ("_FOLDER_FLAGS", "_READ_FLAGS"):
        patch.setattr(disk, name, getattr(disk, name) & ~os.O_NOFOLLOW)


def transcripts_are_searched_as_a_whole(patch: pytest.MonkeyPatch) -> None:
    from bot.storage.sqlite import SqliteTransaction

    search = SqliteTransaction.search_text

    def leaky(self: SqliteTransaction, query: str, limit: int, *_: object) -> Any:
        keys = [str(row[0]) for row in self.execute("SELECT DISTINCT key FROM sessions")]
        return search(self, query, limit, keys)

    patch.setattr(SqliteTransaction, "search_text", leaky)


def everybody_shares_one_conversation(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import routing

    patch.setattr(routing, "session_key", lambda *_args: "agent:main:main")


def one_prefix_for_all_views(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import prefix

    patch.setattr(prefix, "name_of", lambda _view: "")


def histories_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    from bot.sessions import inbox

    patch.setattr(inbox, "_HERE", "(? || ? || ? || ?) IS NOT NULL")


def a_log_quotes(patch: pytest.MonkeyPatch) -> None:
    from bot.agent.tools.toolbox import Toolbox

    run = Toolbox.run

    async def leaky(self: Toolbox, use: Any, context: Any, **more: Any) -> Any:
        logging.getLogger("aiohttp.client").debug("asked %s with %s", use.name, use.input)
        return await run(self, use, context, **more)

    patch.setattr(Toolbox, "run", leaky)


def a_page_tells_more(patch: pytest.MonkeyPatch) -> None:
    from bot.dashboard.api import MemoryPages

    async def leaky(self: MemoryPages, request: web.Request) -> web.Response:
        found = await self._memory.index.search(
            request.query["q"], ("people/ada", *_people(self)), 50
        )
        return web.json_response([hit.snippet for hit in found.hits])

    def _people(self: MemoryPages) -> Iterator[str]:
        workspace = self._memory.store.root  # type: ignore[attr-defined]
        return (f"people/{path.name}" for path in (workspace / "people").iterdir())

    patch.setattr(MemoryPages, "_search", leaky)


def rooms_overhear_each_other(patch: pytest.MonkeyPatch) -> None:
    from bot.gateway.admission import Overheard

    hear, take = Overheard.hear, Overheard.take
    patch.setattr(Overheard, "hear", lambda self, _key, inbound: hear(self, "", inbound))
    patch.setattr(Overheard, "take", lambda self, _key: take(self, ""))


def topics_are_one_conversation(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import routing

    key = routing.session_key
    patch.setattr(
        routing,
        "session_key",
        lambda config, inbound, *seat: key(config, replace(inbound, thread=""), *seat),
    )


def servers_share_their_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import view

    patch.setattr(view, "room_name", lambda channel, _account, chat: f"{channel}-{chat}")


def people_bring_their_memory_into_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    view_for = conversation.view_for

    def leaky(config: Any, subject: Any, **known: Any) -> MemoryView:
        return view_for(config, replace(subject, chat_type="direct"), **known)

    patch.setattr(conversation, "view_for", leaky)


def bystanders_are_answered(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    patch.setattr(conversation, "addressed", lambda *_args, **_kwargs: True)


def links_join_everybody(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    def leaky(policy: Any, books: Any, version: int = 1) -> conversation.PolicySnapshot:
        return replace(of(policy, books, version), joined=Everybodys(books.links))

    class Everybodys(dict[str, Any]):
        def __init__(self, links: Any) -> None:
            self.links = links

        def get(self, *_: Any) -> Any:
            return self.links

    of = conversation.PolicySnapshot.of
    patch.setattr(conversation.PolicySnapshot, "of", leaky)


def codes_stay_good_in_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot import codes

    patch.setattr(codes, "typed_in", lambda _text: frozenset())


def what_was_joined_stays_joined(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import ConversationResolver

    linked = ConversationResolver.linked
    patch.setattr(
        ConversationResolver,
        "linked",
        lambda self, found: linked(self, (*self.now.books.links, *found)),
    )


BREAKS: tuple[Break, ...] = (
    everybody_is_ada,
    groups_count_as_direct,
    private_files_come_without_a_view,
    searches_look_everywhere,
    names_lead_anywhere,
    links_are_followed,
    transcripts_are_searched_as_a_whole,
    everybody_shares_one_conversation,
    one_prefix_for_all_views,
    histories_are_not_told_apart,
    a_log_quotes,
    a_page_tells_more,
    rooms_overhear_each_other,
    topics_are_one_conversation,
    servers_share_their_rooms,
    people_bring_their_memory_into_rooms,
    bystanders_are_answered,
    links_join_everybody,
    codes_stay_good_in_rooms,
    what_was_joined_stays_joined,
)
# Rooms see nothing by default: for these there must be something to see.
OPEN_ROOMS = frozenset({servers_share_their_rooms, people_bring_their_memory_into_rooms})


@pytest.mark.slow
@pytest.mark.parametrize("leaky", BREAKS, ids=lambda leaky: leaky.__name__)
async def test_a_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaky: Break):
    setting = Setting(owner=("memory:boss",), embedder="hash")
    if leaky is one_prefix_for_all_views:  # conversations several people share
        setting = replace(setting, dm_scope="main")
    if leaky in OPEN_ROOMS:
        setting = replace(setting, scope=Rules("allow", ()))
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await take_the_tour(tmp_path, setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaky", [rows_are_searched_everywhere, names_lead_anywhere], ids=lambda leaky: leaky.__name__
)
async def test_a_leak_of_rows_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, leaky: Break
):
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await take_the_tour(
            tmp_path, Setting(owner=("memory:boss",), embedder="hash"), postgres_url
        )
