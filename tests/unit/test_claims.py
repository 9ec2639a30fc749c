"""Entries as claims: whose, since when; what time, confirming and using do to their strength."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools import MemoryPassage, ToolContext, TurnMemory
from bot.agent.tools.provenance import (
    Sources,
    already,
    as_others,
    provenance_of,
    sources_of,
    spoken_by_bot,
)
from bot.config import AgingConfig
from bot.context import sentences
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import claims, markdown, uses
from bot.memory.claims import Aging, Claim
from bot.memory.markdown import entry_words
from bot.memory.notes import Place
from bot.memory.selftest import Asked, in_other_words
from bot.memory.selftest import Place as Spot
from bot.messages import CLEAN, Message, Text, ToolResult, ToolUse
from bot.storage import Database

DAY = date(2026, 7, 1)
LIVES = AgingConfig()
NOTE = """\
# Memory

- By hand, without a date
- Lives in Berlin <!-- owner 2026-01-05 -->
- Likes trains <!-- agent 2026-01-05 confirmed 2026-03-01 -->
  and ferries
- From elsewhere <!-- untrusted 2026-02-01 -->
- ~~Lived in Bonn~~ <!-- agent 2025-01-05, in MEMORY.md until 2026-01-05 -->

## What was noted 2025-05-06

- Collects stamps <!-- imported -->

### And more

- Collects coins <!-- agent -->
- A day that is none <!-- agent 2026-02-30 confirmed 2026-02-31 -->

```
- no claim <!-- agent -->
```

## Undated

- Nobody knows when <!-- agent -->
"""

days = st.dates(date(2000, 1, 1), date(2100, 1, 1))
maybe = st.none() | days
lives = st.builds(
    AgingConfig, **dict.fromkeys(("agent", "imported", "untrusted"), st.floats(0, 2000))
)
told: st.SearchStrategy[Claim] = st.builds(
    Claim,
    first=st.just(1),
    last=st.just(1),
    text=st.text(max_size=20),
    whose=st.sampled_from(["owner", "agent", "imported", "untrusted", "hand"]),
    said=maybe,
    confirmed=maybe,
    used=maybe,
    is_over=st.booleans(),
)


def test_a_note_s_entries_are_claims_with_whose_they_are_and_since_when():
    found = [(c.first, c.last, c.whose, c.said, c.confirmed) for c in claims.of_note("x.md", NOTE)]
    heading = date(2025, 5, 6)
    assert found == [
        (3, 3, "hand", None, None),
        (4, 4, "owner", date(2026, 1, 5), None),
        (5, 6, "agent", date(2026, 1, 5), date(2026, 3, 1)),
        (7, 7, "untrusted", date(2026, 2, 1), None),
        (8, 8, "agent", date(2025, 1, 5), None),
        (12, 12, "imported", heading, None),
        (16, 16, "agent", heading, None),
        (17, 17, "agent", heading, None),
        (25, 25, "agent", None, None),
    ]
    over = [c.text for c in claims.of_note("x.md", NOTE) if c.is_over]
    assert over == ["~~Lived in Bonn~~"]


def test_the_name_of_a_day_s_note_tells_the_day_of_what_has_none_of_its_own():
    made = "- 14:03 Likes tea <!-- agent -->\n- Likes it more <!-- agent 2025-01-01 -->\n"
    found = list(claims.of_note("memory/2026-07-01.md", made))
    assert [c.said for c in found] == [DAY, date(2025, 1, 1)]
    assert found[0].text == "14:03 Likes tea"
    assert found[0].digest == claims.digest("likes tea")  # wherever it stands, and whenever
    assert "tea" not in found[0].digest


@given(told, days, days, lives)
def test_what_a_claim_counts_only_falls_as_time_goes_by_but_for_the_persons_own(
    claim, one, other, half_lives
):
    first, later = sorted((one, other))
    before, after = (claims.strength(claim, day, half_lives) for day in (first, later))
    assert 0.0 <= after <= before <= 1.0
    own = replace(claim, is_over=False, whose="owner" if one < other else "hand")
    assert claims.strength(own, later, half_lives) == 1.0


@given(told, days, lives)
def test_confirming_and_using_restore_what_was_concluded(claim, today, half_lives):
    for whose in ("agent", "imported"):
        faded = replace(claim, whose=whose, is_over=False)
        for borne in (replace(faded, confirmed=today), replace(faded, used=today)):
            assert claims.strength(borne, today, half_lives) == 1.0
            assert not Aging(today, half_lives).is_faded(borne, "main")


@given(told, days, maybe, maybe, lives)
def test_what_came_from_elsewhere_is_no_stronger_for_being_said_again(
    claim, today, confirmed, used, half_lives
):
    once = replace(claim, whose="untrusted", confirmed=None, used=None)
    again = replace(once, confirmed=confirmed, used=used)
    expected = claims.strength(once, today, half_lives)
    assert claims.strength(again, today, half_lives) == expected
    line = "- From elsewhere <!-- untrusted 2026-02-01 -->\n"
    assert claims.confirmed(line, 1, today) == line


def test_half_of_the_strength_is_gone_after_each_half_life_of_its_kind():
    for whose, half_life in (("agent", 180), ("imported", 365), ("untrusted", 90)):
        claim = Claim(1, 1, "x", whose, DAY)
        ages = [claims.strength(claim, DAY + timedelta(half_life * n), LIVES) for n in range(3)]
        assert ages == [1.0, 0.5, 0.25]
        assert Aging(DAY + timedelta(half_life * 2 + 1)).is_faded(claim, "main")
        never = AgingConfig(agent=0, imported=0, untrusted=0)
        assert claims.strength(claim, DAY + timedelta(9_999), never) == 1.0
        # Older than any other, as nobody knows since when.
        assert claims.strength(replace(claim, said=None), DAY, LIVES) == 0.0
    over = Claim(1, 1, "~~x~~", "owner", DAY, is_over=True)
    assert claims.strength(over, DAY, LIVES) == 0.0


def test_only_the_person_s_own_words_confirm():
    by = ("owner", "agent", "imported", "untrusted")
    assert [claims.confirms(each) for each in by] == [True, False, False, False]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- a <!-- agent -->", "- a <!-- agent confirmed 2026-07-01 -->"),
        ("- a <!--agent-->  ", "- a <!--agent confirmed 2026-07-01 -->  "),
        ("- a <!-- agent -->\r", "- a <!-- agent confirmed 2026-07-01 -->\r"),
        (
            "- a <!-- imported 2026-01-05 -->",
            "- a <!-- imported 2026-01-05 confirmed 2026-07-01 -->",
        ),
        (
            "- a <!-- agent 2026-01-05 confirmed 2026-03-01, by hand -->",
            "- a <!-- agent 2026-01-05 confirmed 2026-07-01, by hand -->",
        ),
        ("- a <!-- agent 2026-01-05 confirmed 2026-08-01 -->", None),
        ("- a <!-- owner 2026-01-05 -->", None),
        ("- a <!-- untrusted -->", None),
        ("- ~~a~~ <!-- agent 2026-01-05 -->", None),
        ("- a", None),
        ("a <!-- agent -->", None),
    ],
)
def test_confirming_changes_the_comment_of_that_entry_and_nothing_else(before, after):
    text = f"# x\n\n{before}\n  more <!-- agent -->\n- b <!-- agent -->\n"
    expected = text if after is None else text.replace(before, after, 1)
    assert claims.confirmed(text, 3, DAY) == expected
    assert claims.confirmed(expected, 3, DAY) == expected


@given(st.text(max_size=200), st.integers(0, 9), days)
def test_no_note_is_broken_by_confirming(text: str, line: int, day: date):
    list(claims.of_note("memory/x.md", text))
    after = claims.confirmed(text, line, day)
    assert markdown.plain(after).split() == markdown.plain(text).split()


def test_a_confirmed_entry_is_shown_replaced_and_forgotten_as_before():
    now = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
    note = markdown.fact("Likes trains", DAY, "agent") + markdown.bullet("Ran", now, "agent")
    for line in (1, 2):
        note = claims.confirmed(note, line, date(2026, 8, 1))
    shown, conclusions = markdown.attributed(note)
    assert shown == "- Likes trains (concluded 2026-07-01)\n- 14:03 Ran (concluded)\n"
    assert len(conclusions) == 2
    assert markdown.says(note, "likes TRAINS") == 1
    changed = markdown.supersede(note, "Likes trains", "- Likes boats\n")
    assert changed.old.startswith("- Likes trains <!-- agent 2026-07-01 confirmed 2026-08-01")
    assert markdown.without_words(note, "trains").count("\n") == 1


async def test_the_last_day_counts_and_each_space_has_its_own(each_database: Database):
    later = DAY + timedelta(1)
    very_old = DAY - uses.KEPT - timedelta(1)

    def work(tx):
        uses.keep(tx, "people/ada", {"old": very_old})
        uses.keep(tx, "people/ada", {"a": later, "b": DAY})
        uses.keep(tx, "people/ada", {"a": DAY, "b": later})
        uses.keep(tx, "people/eve", {"a": DAY})
        uses.keep(tx, "people/eve", {})

    await each_database.write(work)
    of_ada = await each_database.read(lambda tx: uses.of_space(tx, "people/ada"))
    assert of_ada == {"a": later, "b": later}
    await each_database.write(lambda tx: uses.forget(tx, "people/ada", ["b", "unknown"]))
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/ada")) == {"b": later}
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/eve")) == {"a": DAY}
    await each_database.write(uses.clear)
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/eve")) == {}


@pytest.mark.parametrize(
    ("claim", "answer", "is_used"),
    [
        ("Prefers window seats on trains", "You prefer window seats on trains, I think.", True),
        ("Prefers window seats on trains", "Trains leave at nine.", False),
        ("喜欢喝乌龙茶", "你喜欢喝乌龙茶。", True),
        ("喜欢喝乌龙茶", "你喜欢什么？", False),
        ("Nora", "Nora is at home", False),  # one word may stand anywhere
    ],
)
def test_an_answer_uses_a_claim_when_it_has_most_of_its_words(claim, answer, *, is_used: bool):
    (each,) = claims.of_note("x.md", f"- {claim} <!-- agent -->\n")
    assert uses.says(sentences.words(answer), each) == is_used


def test_a_note_has_the_digests_of_its_entries():
    note = markdown.fact("Likes tea\nand cake", DAY, "agent") + "Not an entry\n- b\n"
    wanted = {claims.digest("likes tea"), claims.digest("b")}
    assert uses.digests_of(note) == wanted
    assert {claim.digest for claim in claims.of_note("x.md", note)} == wanted


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_question_is_not_the_entry_and_all_turns_together_are(turn: int) -> None:
    entry = "14:03 Grandma moved to a house in Kiel with seven windows <!-- owner -->"
    question = in_other_words(entry, turn)
    words = question.split()
    assert len(words) >= 3
    assert set(words) < set(entry_words(entry).split())
    assert words != [word for word in entry_words(entry).split() if word in words]
    asked = {word for each in range(3) for word in in_other_words(entry, each).split()}
    assert {"grandma", "moved", "house", "kiel", "windows"} <= asked


def test_chinese_is_asked_for_in_pieces() -> None:
    question = in_other_words("奶奶搬到了基尔的新房子，很喜欢海边", 0)
    assert question
    assert question.replace(" ", "") != "奶奶搬到了基尔的新房子很喜欢海边"


@pytest.mark.parametrize("entry", ["", "ok", "yes and no", "~~the bike is blue~~"])
def test_what_says_too_little_is_not_asked_for(entry: str) -> None:
    assert in_other_words(entry, 0) == ""


@given(st.text(max_size=200), st.integers(0, 10))
def test_whatever_a_note_says_no_word_is_made_up(entry: str, turn: int) -> None:
    said = entry_words(entry).replace(" ", "")
    assert all(word in said for word in in_other_words(entry, turn).split())


def test_only_what_was_missed_again_counts_as_never_found() -> None:
    asked = Asked(1, 4, 2, (Spot("MEMORY.md", 3), Spot("MEMORY.md", 5, 2)))
    assert asked.never == (Spot("MEMORY.md", 5, 2),)
    assert asked.share == 50
    assert Asked(1, 0, 0).share == 100


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PRIVATE = MemoryView(MAIN_SPACE, ("k",), private=True)
ROOM = MemoryView("rooms/x", ("k",), private=False)


def user(*blocks: Text | ToolResult) -> Message:
    return Message("user", blocks)


def said(text: str) -> Text:
    return Text(text, origin="person")


def forwarded(text: str) -> Text:
    return Text(text, note=True, origin="forwarded")


def context(
    *seen: Message, foreign: tuple[str, ...] = (), view: MemoryView = PRIVATE
) -> ToolContext:
    return ToolContext(view, "s", NOW, memory=TurnMemory(seen=seen, foreign=[*foreign]))


def test_each_piece_of_what_was_shown_counts_by_whose_it_is():
    memory = TurnMemory(
        seen=(
            user(said("mine"), forwarded("a stranger's"), Text("it is noon", note=True)),
            Message("assistant", (Text("the bot's"), Text("its sense", origin="mixed"))),
            user(ToolResult("t", "a page"), ToolResult("t", "a clean one", origin="memory")),
            user(Text("recalled", note=True, origin="carried"), said("also mine")),
            Message("assistant", (ToolUse("t", "memory_get", {}), Text("later", origin="carried"))),
        ),
        foreign=["looked up"],
    )
    assert sources_of(memory) == Sources(
        own=("mine", "also mine"),
        foreign=("looked up", "a stranger's", "its sense", "a page"),
        carried=("recalled", "later"),
    )
    assert memory.foreign == ["looked up"]  # it is only read


BOAT = "my boat is called Orinoco"


@pytest.mark.parametrize(
    ("text", "where", "whose"),
    [
        (BOAT, context(user(said(f"remember: {BOAT}"))), "owner"),
        ("She will move in May", context(user(said("ok"))), "agent"),
        # In a room nobody's words are the owner's.
        (BOAT, context(user(said(BOAT)), view=ROOM), "agent"),
        # Three words of five are enough to be the person's, two are not.
        ("red green blue pink grey", context(user(said("red green blue"))), "owner"),
        ("red green blue pink grey", context(user(said("red green"))), "agent"),
        # They stand in one message: a long conversation has nearly every word somewhere.
        ("red green blue pink", context(user(said("red green")), user(said("blue pink"))), "agent"),
        ("我的船叫奥里诺科", context(user(said("我的船叫奥里诺科"))), "owner"),
        ("我的船叫奥里诺科", context(user(said("我的猫"))), "agent"),
        ("我的船叫奥里诺科号", context(user(said("我的船叫奥里诺科"))), "owner"),
        ("a boat", context(user(said("I have a boat"))), "owner"),
        ("She will move in May", context(), "agent"),
        ("Orinoco", context(), "agent"),
        # Others' words in sight: only what is plainly the person's own is theirs.
        (BOAT, context(user(said(BOAT), forwarded("see you"))), "owner"),
        ("her ship", context(user(said(BOAT), forwarded("see you"))), "untrusted"),
        (BOAT, context(user(said("keep that")), foreign=(BOAT,)), "untrusted"),
        # One word only somebody else said is enough, in the text or its title.
        (f"{BOAT} Nile", context(user(said(BOAT), forwarded("Nile"))), "untrusted"),
        # What was carried over counts by its words alone.
        ("her ship", context(user(said(BOAT), Text("Nile", origin="carried"))), "agent"),
        ("her Nile", context(user(said(BOAT), Text("Nile", origin="carried"))), "untrusted"),
        ("her art", context(user(said(BOAT), Text("party", origin="carried"))), "agent"),
        # How a fact speaks of whom it is about is nobody's word.
        (f"the user: {BOAT}", context(user(said(BOAT), forwarded("user"))), "owner"),
        ("", context(user(said(BOAT))), "agent"),
    ],
)
def test_whose_words_a_text_is_made_of(text: str, where: ToolContext, whose: str):
    assert provenance_of(text, where) == whose


def test_a_title_counts_with_its_text():
    where = context(user(said(BOAT), forwarded("Nile")))
    assert provenance_of(BOAT, where, title="Nile") == "untrusted"
    assert provenance_of(BOAT, where, title="boat") == "owner"


def test_what_is_called_untrusted_is_not_looked_at():
    assert provenance_of(BOAT, context(user(said(BOAT))), untrusted=True) == "untrusted"


ANSWER = Message("assistant", (Text("Orinoco it is"), ToolUse("t", "memory_write", {})))


@pytest.mark.parametrize(
    ("seen", "foreign", "messages", "origin"),
    [
        ((user(said(BOAT)),), [], (ANSWER,), "bot"),
        ((user(said(BOAT), forwarded("x")),), [], (ANSWER,), "mixed"),
        ((user(said(BOAT)),), ["x"], (ANSWER,), "mixed"),
        ((user(said(BOAT)),), [], (user(ToolResult("t", "page")), ANSWER), "mixed"),
        ((user(said(BOAT)),), [], (user(ToolResult("t", "p", origin="memory")), ANSWER), "bot"),
        ((user(said(BOAT), Text("Nile", origin="before")),), [], (ANSWER,), "carried"),
        # What was carried over marks an answer only where its words are in it.
        ((user(said(BOAT), Text("Nile", origin="carried")),), [], (ANSWER,), "bot"),
        ((user(said("hm"), Text("Orinoco", origin="carried")),), [], (ANSWER,), "carried"),
        (
            (user(said("hm")),),
            [],
            (user(ToolResult("t", "Orinoco", origin="carried")), ANSWER),
            "carried",
        ),
        ((user(said(BOAT)),), [], (user(said("and more")), ANSWER), "bot"),
        ((user(said(BOAT), Text("N", origin="carried"), forwarded("x")),), [], (ANSWER,), "mixed"),
    ],
)
def test_an_answer_bears_the_mark_of_what_the_model_was_shown(seen, foreign, messages, origin):
    marked = spoken_by_bot(messages, TurnMemory(seen=seen, foreign=foreign))
    assert marked[:-1] == messages[:-1]  # what tools said stays what it is
    words, use = marked[-1].blocks
    assert words == Text("Orinoco it is", origin=origin)
    assert use == ANSWER.blocks[1]
    assert marked[-1].role == "assistant"


def test_every_answer_of_a_turn_is_looked_at_for_what_was_carried_over():
    seen = (user(said("hm"), Text("the Nile", origin="carried")),)
    first, last = Message("assistant", (Text("The Nile"),)), Message("assistant", (Text("yes"),))
    clean = user(ToolResult("t", "fine", origin="memory"))
    marked = spoken_by_bot((first, clean, last), TurnMemory(seen=seen))
    assert [message.blocks[0].origin for message in marked] == ["carried", "memory", "carried"]


def test_notes_and_what_has_a_mark_keep_theirs():
    blocks = (Text("a", note=True), Text("b", origin="file"), Text("c"), Text("d", origin="person"))
    marked = spoken_by_bot((Message("assistant", blocks),), TurnMemory())[0].blocks
    assert marked == (*blocks[:2], Text("c", origin="mixed"), Text("d", origin="mixed"))


def test_of_a_conversation_several_people_share_nothing_is_one_persons():
    messages = (user(said("hi"), Text("noon", note=True)), Message("assistant", (Text("hello"),)))
    assert as_others(messages) == (
        user(Text("hi", origin="unknown"), Text("noon", note=True)),
        messages[1],
    )
    answers = user(ToolResult("t", "page"))
    assert as_others([answers]) == (answers,)


@pytest.mark.parametrize(
    ("block", "strange"),
    [
        (said("x"), False),
        (Text("x"), False),
        (Text("x", origin="bot"), False),
        (forwarded("x"), True),
        (Text("x", origin="carried"), True),
        (ToolResult("t", "x"), True),
        (ToolResult("t", "x", origin="memory"), False),
    ],
)
def test_what_may_hold_others_words(block: Text | ToolResult, strange: bool):  # noqa: FBT001
    assert bool(user(block).origins - CLEAN) is strange


LINES = "# Boats\n\n- A dinghy\n* My boat is called Orinoco <!-- owner -->\n"
LONG_FACT = "the boat at the pier is called Orinoco by all"


@pytest.mark.parametrize(
    ("text", "recalled", "files", "place"),
    [
        (BOAT, [], {"MEMORY.md": LINES}, Place("MEMORY.md", 4)),
        (BOAT, [], {"USER.md": "nothing", "MEMORY.md": LINES}, Place("MEMORY.md", 4)),
        (BOAT, [MemoryPassage(Place("memory/boats.md", 7), LINES)], {},
         Place("memory/boats.md", 10)),
        (BOAT,
         [MemoryPassage(Place("a.md", 1), "no"), MemoryPassage(Place("b.md", 2), f"- {BOAT}")], {},
         Place("b.md", 2)),
        # A long text may stand inside a passage, a short one there is chance.
        (LONG_FACT, [MemoryPassage(Place("c.md", 3), f"They say {LONG_FACT} and mean it")], {},
         Place("c.md", 3)),
        (LONG_FACT,
         [MemoryPassage(Place("c.md", 3), "The boat at the pier is\n  called Orinoco by all.")],
         {}, Place("c.md", 3)),
        # What is struck out is true no more, until it is said again.
        (BOAT, [MemoryPassage(Place("c.md", 3), f"- ~~{BOAT}~~")], {}, None),
        (LONG_FACT, [MemoryPassage(Place("c.md", 3), f"- ~~{LONG_FACT}~~\n- A dinghy")], {}, None),
        (LONG_FACT, [MemoryPassage(Place("c.md", 3), f"- A dinghy\n- ~~Or: {LONG_FACT}~~")], {},
         None),
        (BOAT, [MemoryPassage(Place("c.md", 3), f"* ~~{BOAT}~~\n+ 12:30 {BOAT} <!-- owner -->")],
         {}, Place("c.md", 4)),
        ("Xavier is my uncle", [MemoryPassage(Place("c.md", 3), "- Xavier is my uncle")], {},
         Place("c.md", 3)),
        ("a boat", [MemoryPassage(Place("c.md", 3), "I have a boat and a car")], {}, None),
        ("a car", [MemoryPassage(Place("c.md", 3), LINES)], {"MEMORY.md": LINES}, None),
    ],
)  # fmt: skip
def test_where_something_stands_already(text, recalled, files, place):
    assert already(text, recalled, files) == place


@pytest.mark.parametrize(("length", "found"), [(29, False), (30, True)])
def test_only_a_long_text_counts_inside_another(length: int, found: bool):  # noqa: FBT001
    text = ("lighthouse keeper " * 3)[: length - 1].replace(" ", "x") + "z"
    assert len(text) == length
    place = Place("a.md", 1)
    assert (already(text, [MemoryPassage(place, f"so {text} it is")], {}) == place) is found
