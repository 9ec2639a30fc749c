"""Whose words are about to be kept: judged from the origins of what the model was shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.agent.tools import MemoryPassage, ToolContext, TurnMemory
from bot.agent.tools.provenance import (
    Sources,
    already,
    as_others,
    provenance_of,
    sources_of,
    spoken_by_bot,
)
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory.notes import Place
from bot.messages import CLEAN, Message, Text, ToolResult, ToolUse

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
        (
            BOAT,
            [MemoryPassage(Place("memory/boats.md", 7), LINES)],
            {},
            Place("memory/boats.md", 10),
        ),
        (
            BOAT,
            [MemoryPassage(Place("a.md", 1), "no"), MemoryPassage(Place("b.md", 2), f"- {BOAT}")],
            {},
            Place("b.md", 2),
        ),
        # A long text may stand inside a passage, a short one there is chance.
        (
            LONG_FACT,
            [MemoryPassage(Place("c.md", 3), f"They say {LONG_FACT} and mean it")],
            {},
            Place("c.md", 3),
        ),
        (
            LONG_FACT,
            [MemoryPassage(Place("c.md", 3), "The boat at the pier is\n  called Orinoco by all.")],
            {},
            Place("c.md", 3),
        ),
        # What is struck out is true no more, until it is said again.
        (BOAT, [MemoryPassage(Place("c.md", 3), f"- ~~{BOAT}~~")], {}, None),
        (LONG_FACT, [MemoryPassage(Place("c.md", 3), f"- ~~{LONG_FACT}~~\n- A dinghy")], {}, None),
        (
            LONG_FACT,
            [MemoryPassage(Place("c.md", 3), f"- A dinghy\n- ~~Or: {LONG_FACT}~~")],
            {},
            None,
        ),
        (
            BOAT,
            [MemoryPassage(Place("c.md", 3), f"* ~~{BOAT}~~\n+ 12:30 {BOAT} <!-- owner -->")],
            {},
            Place("c.md", 4),
        ),
        (
            "Xavier is my uncle",
            [MemoryPassage(Place("c.md", 3), "- Xavier is my uncle")],
            {},
            Place("c.md", 3),
        ),
        ("a boat", [MemoryPassage(Place("c.md", 3), "I have a boat and a car")], {}, None),
        ("a car", [MemoryPassage(Place("c.md", 3), LINES)], {"MEMORY.md": LINES}, None),
    ],
)
def test_where_something_stands_already(text, recalled, files, place):
    assert already(text, recalled, files) == place


@pytest.mark.parametrize(("length", "found"), [(29, False), (30, True)])
def test_only_a_long_text_counts_inside_another(length: int, found: bool):  # noqa: FBT001
    text = ("lighthouse keeper " * 3)[: length - 1].replace(" ", "x") + "z"
    assert len(text) == length
    place = Place("a.md", 1)
    assert (already(text, [MemoryPassage(place, f"so {text} it is")], {}) == place) is found
