from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import PruningConfig
from bot.context import tokens
from bot.context.history import tool_names
from bot.context.pruning import CLEARED, is_due, prune
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse

DEFAULTS = PruningConfig()
WINDOWS = (16_000, 32_000, 200_000, 1_000_000)
MINUTE = 60_000


def said(words: str = "please") -> Message:
    return Message("user", (Text(words),))


def reply(words: str = "done") -> Message:
    return Message("assistant", (Text(words),))


def call(*ids: str, name: str = "search") -> Message:
    return Message("assistant", tuple(ToolUse(each, name, {}) for each in ids))


def answer(text: str, call_id: str = "a", kept: str = "") -> Message:
    return Message("user", (ToolResult(call_id, text, kept=kept),))


def after(*messages: Message) -> list[Message]:
    """A conversation with these after its first words, and so many replies that they are old."""
    return [said(), *messages, *[reply()] * DEFAULTS.keep_turns]


def sizes_of(messages: list[Message]) -> list[int]:
    return [
        sum(
            tokens.estimate(block.text) if isinstance(block, Text | ToolResult) else 5
            for block in message.blocks
        )
        for message in messages
    ]


def apply(messages: list[Message], changed: dict[int, Message]) -> list[Message]:
    return [changed.get(index, message) for index, message in enumerate(messages)]


def pruned(
    messages: list[Message], *, window: int = 16_000, sizes=None, **options
) -> list[Message]:
    config = PruningConfig.model_validate(options.pop("config", {}))
    sizes = sizes_of(messages) if sizes is None else sizes
    return apply(messages, prune(messages, sizes, window=window, config=config, **options))


def text_of(message: Message) -> str:
    (block,) = message.blocks
    assert isinstance(block, ToolResult)
    return block.text


FULL = 16_000 * 3  # characters that are more than 0.3 of a window of 16 000 tokens


@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_is_shortened_below_three_tenths_of_the_window(window):
    messages = after(call("a"), answer("x" * 4_001))
    border = window * 3 // 10
    changed = [
        pruned(messages, window=window, sizes=[size, 0, 0, 0, 0, 0]) != messages
        for size in (border - 1, border, border + 1)
    ]
    assert changed == [False, True, True]


@pytest.mark.parametrize(("length", "trimmed"), [(3_999, False), (4_000, False), (4_001, True)])
def test_a_result_of_more_than_4_000_characters_keeps_its_head_and_tail(length, trimmed):
    whole = "h" * 1_500 + "m" * (length - 3_000) + "t" * 1_500
    messages = after(call("a"), answer(whole), call("b"), answer("x" * FULL, "b"))
    found = text_of(pruned(messages)[2])
    if not trimmed:
        assert found == whole
    else:
        assert found == "\n".join(
            (
                "h" * 1_500,
                "...",
                "t" * 1_500,
                f"[Only the beginning and the end of {length} characters are shown.]",
            )
        )


@pytest.mark.parametrize(("length", "trimmed"), [(999, False), (1_000, False), (1_001, True)])
def test_chinese_counts_by_its_tokens(length, trimmed):
    whole = "头" * 400 + "中" * (length - 800) + "尾" * 400
    messages = after(call("a"), answer(whole), call("b"), answer("x" * FULL, "b"))
    found = text_of(pruned(messages)[2])
    if not trimmed:
        assert found == whole
    else:
        head, dots, tail, note = found.split("\n")
        assert (head, dots, tail) == ("头" * 375, "...", "尾" * 375)
        assert "1001" in note


def test_mixed_scripts_are_cut_by_weight():
    messages = after(call("a"), answer("é" * 1_496 + "一二三" + "x" * FULL + "四五" + "y" * 1_492))
    head, _, tail, _ = text_of(pruned(messages)[2]).split("\n")
    assert head == "é" * 1_496 + "一"
    assert tail == "四五" + "y" * 1_492


@pytest.mark.parametrize("window", WINDOWS)
def test_the_oldest_results_are_emptied_until_half_the_window_is_free(window):
    ids = [f"r{number}" for number in range(30)]
    turns = [message for each in ids for message in (call(each), answer("x" * 3_999, each))]
    messages = after(*turns)
    sizes = [0] * len(messages)
    results = range(2, 2 + 2 * len(ids), 2)
    saved = tokens.estimate("x" * 3_999) - tokens.estimate(CLEARED)
    for over, cleared in ((-1, 0), (0, 1), (saved - 1, 1), (saved, 2), (saved + 1, 2)):
        sizes[0] = window // 2 + over
        found = pruned(messages, window=window, sizes=sizes)
        texts = [text_of(found[index]) for index in results]
        assert texts == [CLEARED] * cleared + ["x" * 3_999] * (len(ids) - cleared)


@pytest.mark.parametrize(("characters", "cleared"), [(49_999, False), (50_000, True)])
def test_results_are_emptied_only_when_there_is_much_to_gain(characters, cleared):
    lengths = [4_000] * 12 + [characters - 48_000]
    turns = [
        message
        for number, length in enumerate(lengths)
        for message in (call(str(number)), answer("x" * length, str(number)))
    ]
    messages = after(*turns)
    found = pruned(messages, sizes=[16_000] * len(messages))
    assert (found != messages) is cleared


def test_what_can_be_gained_is_counted_after_results_were_trimmed():
    messages = after(call("a"), answer("x" * 90_000), call("b"), answer("x" * 3_000, "b"))
    found = pruned(messages, sizes=[16_000] * len(messages))
    assert "..." in text_of(found[2])
    assert text_of(found[4]) == "x" * 3_000


def test_chinese_that_can_be_gained_counts_by_its_tokens():
    turns = [
        message
        for number in range(13)
        for message in (call(str(number)), answer("字" * 990, str(number)))
    ]
    messages = after(*turns)
    assert CLEARED in text_of(pruned(messages, sizes=[16_000] * len(messages))[2])


def test_what_stands_before_the_first_words_of_a_person_stays():
    before = [call("a"), answer("x" * FULL)]
    later = [call("b"), answer("x" * FULL, "b")]
    messages = [*before, said(), *later, reply(), reply(), reply()]
    found = pruned(messages)
    assert found[:2] == before
    assert found[4] != messages[4]
    assert pruned([*before, *later, reply(), reply(), reply()])[3] == later[1]
    noted = Message("user", (Text("it is Monday", note=True),))
    assert pruned([noted, *before, reply(), reply(), reply()])[2] == before[1]


@pytest.mark.parametrize("keep", [1, 3, 5])
def test_the_latest_replies_and_what_follows_them_stay(keep):
    turns = [
        message
        for number in range(8)
        for message in (call(str(number)), answer("x" * FULL, str(number)))
    ]
    messages = [said(), *turns]
    found = pruned(messages, config={"keep_turns": keep})
    changed = [n for n in range(8) if found[2 + 2 * n] != messages[2 + 2 * n]]
    assert changed == list(range(8 - keep))


def test_with_fewer_replies_than_are_kept_nothing_is_old():
    messages = [said(), call("a"), answer("x" * FULL), reply()]
    assert pruned(messages) == messages
    assert pruned(messages, config={"keep_turns": 2}) == messages
    assert pruned(messages, config={"keep_turns": 1}) != messages


def test_results_beside_a_picture_stay():
    beside = Message("user", (ToolResult("a", "x" * FULL), Opaque({"type": "image"})))
    thought = Message("assistant", (Opaque({"type": "thinking"}), ToolUse("b", "search", {})))
    messages = after(call("a"), beside, thought, answer("x" * FULL, "b"))
    found = pruned(messages)
    assert found[2] == beside
    assert found[3] == thought
    assert found[4] != messages[4]


@pytest.mark.parametrize(
    ("allow", "deny", "shortened"),
    [
        (["*"], [], True),
        ([], [], False),
        (["Web_*"], [], True),
        (["web_*"], [], True),
        (["memory_*"], [], False),
        (["memory_*", "*_search"], [], True),
        (["*"], ["web_search"], False),
        (["*"], ["WEB*"], False),
        (["web_search"], ["*"], False),
        (["*"], ["web"], True),
        (["web"], [], False),
    ],
)
def test_tools_may_be_allowed_and_denied(allow, deny, shortened):
    messages = after(call("a", name="Web_Search"), answer("x" * FULL))
    found = pruned(messages, config={"allow": allow, "deny": deny})
    assert (found != messages) is shortened


def test_the_answer_to_no_known_call_stays():
    messages = after(answer("x" * FULL, "unknown"))
    assert pruned(messages) == messages


def test_names_come_from_the_calls():
    assert tool_names([said(), call("a", "b"), call("c", name="get")]) == {
        "a": "search",
        "b": "search",
        "c": "get",
    }


def test_nothing_is_shortened_when_it_is_off():
    messages = after(call("a"), answer("x" * FULL))
    assert pruned(messages, config={"enabled": False}) == messages


def test_each_result_of_a_message_is_shortened_by_itself():
    both = Message(
        "user", (ToolResult("a", "x" * FULL, is_error=True), Text("and"), ToolResult("b", "short"))
    )
    found = pruned(after(call("a", "b"), both))[2]
    first, *others = found.blocks
    assert isinstance(first, ToolResult)
    assert (first.tool_use_id, first.is_error) == ("a", True)
    assert len(first.text) < 4_000
    assert others == list(both.blocks[1:])


@pytest.mark.parametrize("place", [0, 700, 1_470, 20_000, -1_470, -700])
def test_where_all_of_a_result_is_kept_stays_readable(place):
    text = "x" * FULL
    text = text[:place] + "\nkept at f00d\n" + text[place:]
    found = text_of(pruned(after(call("a"), answer(text, kept="f00d")))[2])
    assert found.count("f00d") == 1


def test_where_all_of_an_emptied_result_is_kept_stays_readable():
    ids = [str(number) for number in range(14)]
    turns = [
        message
        for each in ids
        for message in (call(each), answer("x" * 3_900, each, kept=f"f00d-{each}"))
    ]
    messages = after(*turns)
    found = pruned(messages, sizes=[16_000] * len(messages))
    assert [text_of(found[2 + 2 * n]) for n in range(14)] == [
        f'{CLEARED}\n[artifact_get {{"id": "f00d-{each}"}} shows all of it.]' for each in ids
    ]


@pytest.mark.parametrize(
    ("last", "now", "ttl", "cold"),
    [
        (0, 1_800_000_000_000, 5, True),  # it was never called
        (0, 5 * MINUTE - 1, 5, False),
        (0, 5 * MINUTE, 5, True),
        (0, 5 * MINUTE + 1, 5, True),
        (0, 60 * MINUTE - 1, 60, False),
        (0, 60 * MINUTE, 60, True),
        (7, 7, 0, True),
        (MINUTE, 0, 5, False),
        (0, 30_000, 0.5, True),
    ],
)
def test_a_cache_is_cold_when_its_time_has_passed(last, now, ttl, cold):
    assert is_due(100, 100, idle_ms=now - last, ttl_minutes=ttl) is cold


def test_where_there_is_no_room_a_warm_cache_does_not_count():
    assert is_due(101, 100, idle_ms=0, ttl_minutes=5)


LENGTHS = st.sampled_from([0, 10, 900, 3_999, 4_000, 4_001, 9_000, 60_000])
WORDS = st.builds(
    lambda letter, length: letter * length, st.sampled_from(["x", "字", "é中"]), LENGTHS
)
NAMES = st.sampled_from(["search", "get", "write"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 12))):
        if draw(st.booleans()):
            messages.append(said(draw(WORDS)))
        ids = [f"{number}-{n}" for n in range(draw(st.integers(0, 2)))]
        if ids:
            messages.append(call(*ids, name=draw(NAMES)))
            results = [ToolResult(each, draw(WORDS), is_error=draw(st.booleans())) for each in ids]
            picture = [Opaque({"type": "image"})] if draw(st.integers(0, 5)) == 0 else []
            messages.append(Message("user", (*results, *picture)))
        messages.append(reply(draw(WORDS)))
    return messages


CONFIGS = st.builds(
    lambda keep, deny: PruningConfig(keep_turns=keep, deny=deny),
    st.integers(1, 4),
    st.sampled_from([(), ("get",), ("*e*",)]),
)
WINDOW = st.sampled_from([1_000, *WINDOWS])


@given(conversations(), CONFIGS, WINDOW)
def test_only_the_text_of_results_is_ever_changed_and_it_gets_shorter(messages, config, window):
    found = apply(messages, prune(messages, sizes_of(messages), window=window, config=config))
    assert len(found) == len(messages)
    for before, after_ in zip(messages, found, strict=True):
        assert before.role == after_.role
        for old, new in zip(before.blocks, after_.blocks, strict=True):
            if isinstance(old, ToolResult) and isinstance(new, ToolResult):
                assert (old.tool_use_id, old.is_error) == (new.tool_use_id, new.is_error)
                assert new == old or tokens.estimate(new.text) < tokens.estimate(old.text)
            else:
                assert old == new


@given(conversations(), CONFIGS, WINDOW)
def test_pruning_again_changes_nothing(messages, config, window):
    once = apply(messages, prune(messages, sizes_of(messages), window=window, config=config))
    assert prune(once, sizes_of(once), window=window, config=config) == {}
    again = prune(messages, sizes_of(messages), window=window, config=config)
    assert apply(messages, again) == once


@given(conversations(), CONFIGS, WINDOW)
def test_what_is_protected_stays(messages, config, window):
    changed = prune(messages, sizes_of(messages), window=window, config=config)
    replies = [n for n, message in enumerate(messages) if message.role == "assistant"]
    first = next((n for n, m in enumerate(messages) if m.role == "user" and m.text), None)
    names = tool_names(messages)
    for index, message in changed.items():
        assert first is not None
        assert first < index < replies[-config.keep_turns]
        assert not [block for block in message.blocks if isinstance(block, Opaque)]
        for old, new in zip(messages[index].blocks, message.blocks, strict=True):
            if old != new:
                assert isinstance(old, ToolResult)
                assert "get" not in config.deny or names[old.tool_use_id] != "get"


@given(conversations(), CONFIGS)
def test_a_larger_window_shortens_no_more(messages, config):
    changed = [
        {
            (index, place)
            for index, message in prune(
                messages, sizes_of(messages), window=window, config=config
            ).items()
            for place, block in enumerate(message.blocks)
            if block != messages[index].blocks[place]
        }
        for window in WINDOWS
    ]
    assert all(larger <= smaller for smaller, larger in pairwise(changed))


def test_nothing_is_emptied_when_trimming_made_enough_room():
    turns = [
        message
        for number in range(20)
        for message in (call(str(number)), answer("x" * 5_000, str(number)))
    ]
    messages = after(*turns)
    sizes = [8_000, *[0] * (len(messages) - 1)]
    found = pruned(messages, sizes=sizes)
    assert ["..." in text_of(found[2 + 2 * number]) for number in range(20)] == [True] * 20
