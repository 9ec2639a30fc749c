from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Message, Text, ToolResult, ToolUse
from bot.context import tokens
from bot.context.conversation import KEEP, Conversation

SIZES = st.integers(0, 400)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """What one turn adds: the person, perhaps tools, the answer."""
    found = [Message("user", (Text("[now]", note=True), Text("q" * draw(st.integers(1, 400)))))]
    for number in range(draw(st.integers(0, 2))):
        found.append(Message("assistant", (ToolUse(f"t{number}", "tool", {}),)))
        found.append(Message("user", (ToolResult(f"t{number}", "r" * draw(SIZES)),)))
    if draw(st.booleans()):
        found.append(Message("assistant", (Text("a" * draw(SIZES)),)))
    return found


TURNS = st.lists(turns(), max_size=8)
BUDGETS = st.integers(-100, 3000)


def weight(messages: tuple[Message, ...]) -> int:
    return sum(tokens.estimate(str(block)) for m in messages for block in m.blocks)


@given(TURNS, BUDGETS)
def test_what_stays_is_the_newest_and_fits_unless_it_is_one_turn(found, budget):
    messages = [message for turn in found for message in turn]
    conversation = Conversation(messages)
    dropped = conversation.fit(budget)
    kept = conversation.messages
    assert list(kept) == messages[dropped:]
    assert conversation.tokens == weight(kept)
    assert weight(kept) <= budget or list(kept) == (found[-1] if found else [])


@given(TURNS, BUDGETS)
def test_what_stays_begins_with_something_a_person_said(found, budget):
    conversation = Conversation(message for turn in found for message in turn)
    if conversation.fit(budget):
        first = conversation.messages[0]
        assert first.role == "user"
        assert first.text


@given(TURNS, BUDGETS)
def test_nothing_is_dropped_that_fits_and_dropping_makes_room_for_more(found, budget):
    conversation = Conversation(message for turn in found for message in turn)
    total = conversation.tokens
    dropped = conversation.fit(budget)
    assert (dropped == 0) or total > budget
    if dropped and len(conversation.messages) > len(found[-1]):
        assert conversation.tokens <= budget * KEEP
    assert conversation.fit(budget) == 0 or conversation.messages == tuple(found[-1])


@given(TURNS, TURNS)
def test_adding_is_the_same_as_having_begun_with_more(before, after):
    flat = [message for turn in (*before, *after) for message in turn]
    grown = Conversation(message for turn in before for message in turn)
    grown.extend(message for turn in after for message in turn)
    assert grown.messages == Conversation(flat).messages
    assert grown.tokens == Conversation(flat).tokens


@given(turns(), BUDGETS)
def test_a_window_that_begins_in_the_middle_of_a_turn_is_cut_to_its_next_one(turn, budget):
    tail = [Message("user", (ToolResult("x", "r" * 500),)), Message("assistant", (Text("a"),))]
    conversation = Conversation([*tail, *turn])
    if conversation.fit(budget):
        assert conversation.messages == tuple(turn)


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one, other):
    assert tokens.estimate(one + other) >= tokens.estimate(one)
    assert tokens.estimate(one + other) <= tokens.estimate(one) + tokens.estimate(other) + 1


@given(st.text(min_size=1))
def test_a_text_that_is_not_empty_counts(text):
    assert tokens.estimate(text) >= 1
    assert tokens.estimate("") == 0


def test_chinese_counts_by_the_character():
    assert tokens.estimate("中" * 100) >= 100
    assert tokens.estimate("x" * 100) < 30
