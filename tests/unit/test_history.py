from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.context import tokens
from bot.context.history import History, Line, size_of
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse

FACTORS = st.floats(0.5, 3.0)


def line(number: int, message: Message) -> Line:
    return Line(f"s.{number}", number, message)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """What one turn adds: the person, perhaps tools, the answer."""
    found = [Message("user", (Text("[now]", note=True), Text("q" * draw(st.integers(1, 400)))))]
    for number in range(draw(st.integers(0, 2))):
        found.append(Message("assistant", (ToolUse(f"t{number}", "tool", {}),)))
        found.append(Message("user", (ToolResult(f"t{number}", "r" * draw(st.integers(0, 400))),)))
    found.append(Message("assistant", (Text("a" * draw(st.integers(1, 400))),)))
    return found


@st.composite
def conversations(draw: st.DrawFn) -> list[Line]:
    messages = [m for turn in draw(st.lists(turns(), min_size=1, max_size=6)) for m in turn]
    return [line(number, message) for number, message in enumerate(messages, 1)]


def weight(lines: list[Line]) -> int:
    return sum(size_of(each.message) for each in lines)


@given(conversations(), st.integers(0, 500), FACTORS)
def test_before_anything_is_reported_everything_is_estimated(lines, fixed, factor):
    history = History(lines)
    assert history.used(fixed, factor) == round((fixed + weight(lines)) * factor)
    assert not history.is_reported


@given(conversations(), conversations(), st.integers(1, 10_000), FACTORS)
def test_after_a_report_only_what_came_since_is_estimated(before, after, reported, factor):
    history = History(before)
    history.extend([], reported)
    history.extend(after)
    assert history.used(99, factor) == reported + round(weight(after) * factor)
    assert history.messages == tuple(each.message for each in (*before, *after))


@given(conversations(), conversations())
def test_adding_is_the_same_as_having_begun_with_more(before, after):
    grown = History(before)
    grown.extend(after)
    whole = History([*before, *after])
    assert (grown.messages, grown.estimated) == (whole.messages, whole.estimated)


@given(conversations(), st.data(), st.text("summary \n", min_size=1, max_size=80))
def test_a_summary_stands_for_exactly_what_was_before_the_first_kept(lines, data, summary):
    starts = [n for n, each in enumerate(lines) if each.message.begins_turn]
    cut = data.draw(st.sampled_from(starts))
    history = reported_as(5_000, lines)
    assert history.compact(summary, lines[cut].entry)
    assert list(history.lines) == lines[cut:]
    assert not history.is_reported  # a report about what is gone would flush a second time
    assert history.estimated == weight(lines[cut:]) + tokens.estimate(summary)
    first, *rest = history.messages
    assert rest == [each.message for each in lines[cut + 1 :]]
    assert first.text == lines[cut].message.text  # the summary is a note, not the person's words
    loaded = History(lines[cut:], summary)
    assert loaded.messages == history.messages  # and the same after a restart


@given(conversations(), st.text(max_size=40))
def test_without_its_first_kept_message_a_conversation_stays_as_it_is(lines, summary):
    history = reported_as(77, lines)
    before = history.messages
    assert not history.compact(summary, "s.9999")
    assert (history.messages, history.used(0, 1)) == (before, 77)


@given(conversations(), st.data())
def test_shortening_changes_what_is_shown_and_what_is_counted(lines, data):
    index = data.draw(st.integers(0, len(lines) - 1))
    shorter = Message(lines[index].message.role, (Text("x"),))
    history = reported_as(10_000, lines)
    version = history.version
    history.shorten({index: shorter})
    assert history.shown[index] == shorter
    assert list(history.lines) == lines
    assert history.estimated == sum(map(size_of, history.shown))
    assert history.version > version
    assert not history.is_reported
    history.shorten({})
    assert history.version == version + 1


def test_every_block_has_a_weight():
    blocks = (Text("words"), ToolUse("1", "tool", {"a": 1}), ToolResult("1", "r"), Opaque({"t": 1}))
    for block in blocks:
        assert size_of(Message("user", (block,))) > 0


def test_only_words_of_a_person_begin_a_turn():
    assert Message("user", (Text("note", note=True), Text("hello"))).begins_turn
    assert Message("user", (Text("passed on", note=True, origin="forwarded"),)).begins_turn
    assert not Message("user", (ToolResult("1", "r"), Text("note", note=True))).begins_turn
    assert not Message("assistant", (Text("hello"),)).begins_turn


def reported_as(reported: int, lines: list[Line]) -> History:
    history = History(lines)
    history.extend([], reported)
    return history


@given(conversations(), conversations(), st.integers(1, 10_000), st.floats(0.5, 3))
def test_what_is_known_from_before_counts_only_when_it_is_more(before, after, known, factor):
    history = History(before, known=known)
    history.extend(after)
    estimate = round((99 + history.estimated) * factor)
    since = round(weight(after) * factor)
    assert history.used(99, factor) == max(known + since, estimate)
    assert not history.is_reported


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one, other):
    assert tokens.estimate(one + other) >= tokens.estimate(one)
    assert tokens.estimate(one + other) <= tokens.estimate(one) + tokens.estimate(other) + 1
