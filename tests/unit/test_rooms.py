"""The mention gate, what is overheard, and what is known of rooms."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.discord import DiscordConfig
from bot.agent.turn import confirmation, without_confirmations
from bot.channel import Address, ChannelConfig, Heard, Inbound, Media, Reaction, ReplyTo
from bot.gateway.admission import MAX_CHARS, MAX_HEARD, MAX_ROOMS, MAX_TEXT, Overheard, read_books
from bot.identity import Books
from bot.identity.access import MAX_SEARCHED, Parsed, addressed, is_abort, named, parse
from bot.memory.notes import Place
from bot.sessions import rooms

SAID = Inbound("telegram", "default", "den", "group", "42", "1", "hello all", 0, sender_name="Ada")
PLAIN = ChannelConfig()
DAY = 86_400_000


def said(text: str, **changes: object) -> Inbound:
    return replace(SAID, text=text, **changes)


# --- the mention gate -----------------------------------------------------------------------------


def test_what_people_say_to_each_other_is_not_for_the_bot():
    assert not addressed(PLAIN, SAID, "", "Confidant")


def test_a_room_that_requires_no_mention_has_everything_for_the_bot():
    assert addressed(ChannelConfig(require_mention=False), SAID, "", "Confidant")


@pytest.mark.parametrize(
    "inbound",
    [
        said("hi", mentions_bot=True),
        said("hi", reply_to=ReplyTo("7", from_bot=True)),
        said("@Confidant hi"),
        said("so what, @confidant?"),
        said("Confidant, what time is it?"),
        said("confidant：几点了"),
        said(" Confidant"),
    ],
)
def test_a_mention_a_reply_and_its_name_are_for_the_bot(inbound):
    assert addressed(PLAIN, inbound, "", "Confidant")


@pytest.mark.parametrize(
    "text",
    [
        *("Confidant is nice", "my confidant, Bob", "write to x@confidant.example", "@confidants"),
        *("", "@", "a confidant"),
    ],
)
def test_a_word_that_only_looks_like_its_name_is_not(text):
    assert not addressed(PLAIN, said(text), "", "Confidant")


@pytest.mark.parametrize("text", ["@小助手你好", "小助手，你好", "你好@小助手"])
def test_a_chinese_name_needs_no_space_after_it(text):
    assert addressed(PLAIN, said(text), "", "小助手")


def test_a_reply_to_somebody_else_is_not():
    assert not addressed(PLAIN, said("hi", reply_to=ReplyTo("7", "Confidant")), "", "Confidant")


def test_patterns_take_the_place_of_the_name_and_do_not_mind_case():
    config = ChannelConfig(mention_patterns=(r"\bhey bot\b",))
    assert addressed(config, said("HEY BOT what's up"), "", "Confidant")
    assert not addressed(config, said("Confidant, hi"), "", "Confidant")


def test_only_the_beginning_of_a_long_message_is_searched():
    config = ChannelConfig(mention_patterns=("robot",))
    assert addressed(config, said(" " * (MAX_SEARCHED - 5) + "robot"), "", "A")
    assert not addressed(config, said(" " * (MAX_SEARCHED - 4) + "robot"), "", "A")


@pytest.mark.timeout(20)  # what grows with the square of the length would take far longer
@pytest.mark.parametrize("text", ["x" * 900_000, "@" * 900_000, "\u202e" * 900_000, " " * 900_000])
def test_huge_talk_is_looked_through_at_once(text):
    assert not addressed(PLAIN, said(text), "", "Confidant")


@given(
    st.booleans(),
    st.sampled_from(["", "mention", "always"]),
    st.booleans(),
    st.booleans(),
    st.text(max_size=20),
)
def test_the_choice_of_the_room_comes_before_the_configuration(
    require_mention, activation, is_command, mentions, name
):
    config = ChannelConfig(require_mention=require_mention)
    inbound = said("zzz", mentions_bot=mentions)
    is_always = activation == "always" if activation else not require_mention
    wanted = is_always or is_command or named(config, inbound, name)
    assert addressed(config, inbound, activation, name, is_command=is_command) == wanted
    assert named(config, inbound, name) or not mentions


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_name_and_any_text_can_be_compared(name, text):
    addressed(PLAIN, said(text), "", name)


# --- what is overheard ----------------------------------------------------------------------------

TALK = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(0, 3 * MAX_TEXT), st.sampled_from(["", "1", "2"])
    ),
    max_size=80,
)


@given(TALK)
def test_what_is_overheard_is_bounded_and_the_newest_stays(talk):
    overheard, last = Overheard(), {}
    for number, (room, length, edit_of) in enumerate(talk):
        mark = f"{number}:"
        overheard.hear(room, said(mark + "x" * length, message_id=f"m{number}", edit_of=edit_of))
        last[room] = mark
    for room, mark in last.items():
        found = overheard.take(room)
        assert 1 <= len(found) <= MAX_HEARD
        assert sum(len(each.text) for each in found) <= MAX_CHARS
        assert found[-1].text.startswith(mark)
        numbers = [int(each.text.partition(":")[0]) for each in found]
        assert numbers == sorted(numbers)
        assert overheard.take(room) == ()


def test_thousands_of_rooms_are_bounded_too():
    overheard = Overheard()
    for number in range(MAX_ROOMS + 500):
        overheard.hear(f"room-{number}", SAID)
        overheard.hear("busy", SAID)
    assert len(overheard) == MAX_ROOMS
    assert overheard.take("room-0") == ()
    assert overheard.take("busy")
    assert overheard.take(f"room-{MAX_ROOMS + 499}")


def test_a_second_copy_is_heard_once_and_an_edit_takes_the_place_of_the_text():
    overheard = Overheard()
    for text, message_id, edit_of in (
        *(("one", "1", ""), ("two", "2", ""), ("one", "1", ""), ("ONE", "1", "1")),
        ("TWO", "9", "2"),
    ):
        overheard.hear("den", said(text, message_id=message_id, edit_of=edit_of))
    assert [each.text for each in overheard.take("den")] == ["ONE", "TWO"]


def test_what_has_no_words_is_described_and_who_has_no_name_has_an_id():
    overheard = Overheard()
    photo = said("", media=(Media("photo", "cat.jpg"),), sender_name="")
    overheard.hear("den", photo)
    assert overheard.take("den") == (Heard("42", "[attached: photo cat.jpg]", 0, photo.media),)


def test_a_name_of_a_million_letters_is_cut():
    overheard = Overheard()
    overheard.hear("den", said("hi", sender_name="x" * 1_000_000))
    assert len(overheard.take("den")[0].sender_name) <= 100


def reaction(emoji: str, message_id: str = "1", **changes: object) -> Reaction:
    place = Address("telegram", "default", "den")
    return replace(Reaction(place, "group", "42", message_id, emoji), **changes)


def test_a_reaction_that_was_taken_away_was_never_there_and_twice_is_once():
    overheard = Overheard()
    for each in (
        *(reaction("👍"), reaction("👍"), reaction("❤"), reaction("👍", sender="43")),
        *(reaction("❤", is_removed=True), reaction("🎉", is_removed=True)),
    ):
        overheard.react("den", each, "Tea is ready.")
    found = overheard.take("den")
    assert [(each.reaction, each.text) for each in found] == [("👍", "Tea is ready.")] * 2
    assert overheard.take("den") == ()


def test_thousands_of_huge_reactions_are_bounded():
    overheard = Overheard()
    for number in range(9_000):
        huge = reaction("x" * 9_000, str(number), sender_name="y" * 9_000)
        overheard.react("den", huge, "z" * 9_000)
    found = overheard.take("den")
    assert len(found) == MAX_HEARD
    assert max(len(each.sender_name + each.reaction + each.text) for each in found) <= 300


@given(st.lists(st.text(max_size=9), max_size=40), st.lists(st.text(max_size=9), max_size=40))
def test_what_is_given_back_comes_before_what_was_said_since(before, since):
    overheard, whole = Overheard(), Overheard()
    for number, text in enumerate([*before, *since]):
        whole.hear("den", said(text, message_id=f"m{number}"))
    for number, text in enumerate(before):
        overheard.hear("den", said(text, message_id=f"m{number}"))
    taken = overheard.take("den")
    for number, text in enumerate(since, start=len(before)):
        overheard.hear("den", said(text, message_id=f"m{number}"))
    overheard.give_back("den", taken)
    assert overheard.take("den") == whole.take("den")


# --- what is known of rooms -----------------------------------------------------------------------

IDS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(IDS, IDS), max_size=12))
def test_a_chat_that_moved_again_and_again_is_still_the_first_one(moves):
    """The same room has the same first id, whichever of its ids it is asked by."""
    book, kept = Books(), {}
    for old, new in moves:
        first = book.first(("t", "d", old))
        book = book.with_moved(("t", "d", new), first)
        kept.pop(("t", "d", new), None)
        if new != first:
            kept[("t", "d", new)] = first
        assert book.first(("t", "d", new)) == first
        assert book.first(("t", "other", new)) == new
        assert new in (first, *book.others(("t", "d", first)))
    again = Books(moved=kept)
    assert [again.first(("t", "d", x)) for x in "abcdef"] == [
        book.first(("t", "d", x)) for x in "abcdef"
    ]


def test_a_room_is_told_once_a_day(tx):
    assert rooms.warn(tx, "den", 1_000, DAY)
    assert not rooms.warn(tx, "den", 1_000 + DAY - 1, DAY)
    assert rooms.warn(tx, "cave", 1_000 + DAY - 1, DAY)
    assert rooms.warn(tx, "den", 1_000 + DAY, DAY)


def test_a_clock_that_was_wrong_does_not_silence_a_room_for_years(tx):
    assert rooms.warn(tx, "den", 10**15, DAY)
    assert rooms.warn(tx, "den", 1_000, DAY)


def test_what_was_chosen_is_read_back_newest_first_and_telling_does_not_change_it(tx):
    for number, key in enumerate(("a", "b", "c")):
        rooms.activate(tx, key, "always", number)
    rooms.warn(tx, "a", 5, DAY)
    rooms.warn(tx, "told", 5, DAY)
    rooms.activate(tx, "a", "mention", 9)
    assert rooms.activations(tx, 2) == {"a": "mention", "c": "always"}
    rooms.prune(tx, DAY)
    assert [row[0] for row in tx.execute("SELECT key FROM rooms ORDER BY key")] == ["a", "b", "c"]


def test_moves_are_read_back(tx):
    rooms.move(tx, ("t", "d", "new"), "old", 1)
    rooms.move(tx, ("t", "d", "new"), "old", 2)
    rooms.move(tx, ("t", "d", "old"), "old", 3)
    assert rooms.moved(tx) == {("t", "d", "new"): "old"}


def test_choices_are_bounded_in_memory_the_newest_stay(tx, monkeypatch):
    monkeypatch.setattr("bot.identity.routing.MAX_CHOSEN", 3)
    monkeypatch.setattr("bot.gateway.admission.MAX_CHOSEN", 3)
    for number, key in enumerate("zabc"):
        rooms.activate(tx, key, "always", number)
    book = read_books(tx)
    assert "z" not in book.chosen
    chosen = book.activated("d", "mention").chosen
    assert [chosen.get(key, "") for key in "abcd"] == ["", "always", "always", "mention"]
    assert chosen.keys() == read_books(tx).chosen.keys() - {"a"} | {"d"}


BAD = {"mention_patterns": ("fine", "(")}


@pytest.mark.parametrize("section", [BAD, {"groups": {"7": BAD}}])
def test_in_a_channel_and_in_its_rooms(section):
    with pytest.raises(ValidationError, match=r"mention_patterns: '\(' is no pattern"):
        ChannelConfig.model_validate(section)


@pytest.mark.parametrize("place", ["guilds", "groups"])
def test_in_discords_servers_and_in_those_of_an_account(place):
    for section in ({place: {"7": BAD}}, {"accounts": {"work": {place: {"7": BAD}}}}):
        with pytest.raises(ValidationError, match=r"mention_patterns: '\(' is no pattern"):
            DiscordConfig.model_validate(section)


@pytest.mark.parametrize("pattern", ["0[[", "[[a]", "[a--b]"])
def test_what_will_mean_something_else_one_day_is_refused(pattern):
    with pytest.raises(ValidationError, match="is no pattern: "):
        ChannelConfig.model_validate({"mention_patterns": (pattern,)})


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Parsed("new")),
        ("  /NEW  ", Parsed("new")),
        ("/new@confidant_bot opus hi", Parsed("new", "opus hi", "confidant_bot")),
        ("/new\nfirst line\nsecond", Parsed("new", "first line\nsecond")),
        ("/model   claude-opus", Parsed("model", "claude-opus")),
        ("/Start x", Parsed("start", "x")),
        ("／help", Parsed("help")),
        ("/帮助", Parsed("help")),
        ("/提醒 明天9点 开会", Parsed("remind", "明天9点 开会")),
        ("/提醒列表", Parsed("reminders")),
        ("／停止", Parsed("stop")),
    ],
)
def test_commands_are_recognised(text, command):
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "//", "/etc/passwd", "/etc/passwd?", "new", "a /new", "/new!", "/新", "/né"),
        *("/帮助我", "/吃饭了吗"),
        *("/a-b", "/" + "x" * 33, "/new@", "/ new"),
    ],
)
def test_what_only_looks_like_a_command_is_a_message(text):
    assert parse(text) is None


@given(st.text())
def test_any_text_is_parsed_and_nothing_after_the_name_is_lost(text):
    found = parse(text)
    if found is not None:
        assert text.strip().startswith(("/", "／"))
        assert found.name == found.name.lower()
        assert text.strip().endswith(found.rest)


@pytest.mark.parametrize("text", ["stop", "STOP!", " Stop. ", "停止", "停止。", "停止！"])
def test_the_words_that_stop_a_reply(text):
    assert is_abort(text)


@pytest.mark.parametrize("text", ["stop it", "don't stop", "", "停", "stops", "stop?"])
def test_other_words_stop_nothing(text):
    assert not is_abort(text)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("✓ Stored.", "Stored."),
        ("  ✅ Stored. ✓", "Stored."),
        ("✔️✔️ 记住了 ✔️", "记住了"),
        ("I ✓ it", "I ✓ it"),
        ("Ok ✓\nmore", "Ok\nmore"),
        ("✓ milk\n✓ eggs", "✓ milk\n✓ eggs"),
        ("✓ milk\n✓ noted: eggs", "✓ milk\nnoted: eggs"),
        ("✓", ""),
        ("", ""),
        ("I'll remember", "I'll remember"),
    ],
)
def test_only_lists_keep_their_ticks(said: str, told: str):
    assert without_confirmations(said) == told


@given(st.text(alphabet="✓✅ a\n记."))
def test_nothing_but_ticks_is_taken_away(said: str):
    told = without_confirmations(said)
    bare = str.maketrans("", "", "✓✅ \n")
    assert told.translate(bare) == said.translate(bare)


def test_a_confirmation_names_each_place_once():
    places = [Place("memory/a.md", 3), Place("MEMORY.md", 5), Place("memory/a.md", 3)]
    assert confirmation("en", places) == "✓ Stored in memory/a.md:3, MEMORY.md:5"
    assert confirmation("zh", places[:1]) == "✓ 已存入 memory/a.md:3"
    assert confirmation("en", []) == ""
