"""Whatever anybody asks, in whatever way: nobody is shown what is another's.

Canaries stand in everybody's conversations and files. Hypothesis drives the people around them, the
model is the worst there can be (it asks for anything and repeats all it is shown), and everything
that comes out is scanned: prompts, replies, drafts, log lines, HTTP answers, histories. Who may see
which canary is decided by `tests/proofs/canaries.py`, from the documentation alone.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bot.settings.checks import built_in_tools
from tests.fakes import postgres
from tests.fakes.config_channels import problems
from tests.proofs.canaries import (
    AGENTS,
    BYSTANDERS,
    EVERYONE,
    LINKER,
    MEMBERS,
    PEOPLE,
    QUESTIONS,
    Plan,
    Rules,
    Setting,
    Who,
    Wiretap,
    World,
)
from tests.proofs.rounds import lengths, rounds
from tests.proofs.tour import (
    KINDS,
    asks,
    asks_memory,
    asks_the_page,
    everybody_is_asked_once_more,
    forgets,
    joins,
    loses_the_index,
    mistypes,
    mutters,
    reads,
    tells,
    writes,
)

STEPS = 150  # of one life
STEP_SECONDS = 60.0  # until a step counts as stuck
WHO = st.sampled_from((*EVERYONE, *MEMBERS))
PERSON = st.sampled_from(EVERYONE)
MEMBER = st.sampled_from(MEMBERS)
IN_ROOMS = st.sampled_from((*MEMBERS, *BYSTANDERS))
TOPIC = st.integers(0, len(QUESTIONS) - 1)
HOSTILE = st.integers(0, 1_000)  # which of the hostile names
DM_SCOPES = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")
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
        st.sampled_from(
            ["agent:main:main", "agent:main:memory:", "agent:main:dm:", "agent:x", "agent:family:"]
        ),
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
    agents=st.sampled_from([(), AGENTS]),
)


NAMES = {
    "channel": ("pigeon", "owl"),
    "account": ("work", "default"),
    "chat_type": ("direct", "group", "channel", "thread"),
    "key_prefix": ("agent:main:pigeon:dm:", "agent:main:main"),
    "person": ("ada", "main", "owl:7"),
    "tools": tuple(built_in_tools()),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_deny_rule_with_one_letter_wrong_keeps_the_program_from_starting(data):
    """It would match nobody, and whoever it is to keep out would be shown everything."""
    option = data.draw(st.sampled_from([*NAMES]))
    name = data.draw(st.sampled_from(NAMES[option]))
    at = data.draw(st.integers(0, len(name.partition(":")[0]) - 1))
    letter = data.draw(st.sampled_from("qxyzj").filter(lambda each: each != name[at]))
    wrong = name[:at] + letter + name[at + 1 :]
    places = (
        "scope",
        "send_policy",
        "channels.pigeon.scope",
        "channels.pigeon.accounts.work.scope",
    )
    is_tools = option in {"tools", "person"}
    table = data.draw(st.sampled_from(("tools",) if is_tools else (*places, "tools")))
    value = f"['{wrong}']" if option == "tools" else f"'{wrong}'"
    toml = (
        "[session.identity_links]\nada = ['pigeon:1']\n[channels.pigeon.accounts.work]\n"
        f"[[{table}.rules]]\naction = 'deny'\n{option} = {value}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        (line,) = problems(Path(folder), toml)
    assert f".rules.{option}: " in line


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


# --- the proofs -----------------------------------------------------------------------------------


@pytest.mark.slow
@lengths("steps", 60, 20 * STEPS, 4 * STEPS)
def test_nobody_is_shown_what_is_anothers(steps: int):
    Strangers.totals, lives = Counter(), max(1, steps // STEPS)
    run_state_machine_as_test(
        Strangers,
        settings=settings(
            max_examples=lives,
            stateful_step_count=min(steps, STEPS),
            deadline=None,
            phases=[Phase.explicit, Phase.generate],  # a run is long; shrinking would take an hour
            suppress_health_check=list(HealthCheck),
        ),
    )
    totals = Strangers.totals
    print("; ".join(f"{count} {what}" for what, count in sorted(totals.items())), "; 0 sightings")
    assert totals["steps"] >= steps
    assert totals["rightly seen"] > 6 * steps  # what may be seen is seen, or nothing was tried
    assert all(totals[kind] > steps / 6 for kind in ("prompts", "replies", "drafts", "answers"))
    assert totals["log lines"] > steps / 6


class SharedStrangers(Strangers):
    """The same where notes are rows of a PostgreSQL."""

    admin_url: ClassVar = ""

    def database(self) -> str:
        """One for each run."""
        return self.stack.enter_context(postgres.a_database(self.admin_url))


@pytest.mark.slow
@pytest.mark.proof
def test_nobody_is_shown_rows_that_are_anothers(postgres_admin_url: str):
    Strangers.totals, SharedStrangers.admin_url = Counter(), postgres_admin_url
    lives = rounds(2, few=1)
    run_state_machine_as_test(
        SharedStrangers,
        settings=settings(
            max_examples=lives,
            stateful_step_count=60,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    totals = Strangers.totals
    print("; ".join(f"{count} {what}" for what, count in sorted(totals.items())), "; 0 sightings")
    assert totals["steps"] >= 50 * lives
    assert totals["rightly seen"] > 250 * lives
