"""What is read of other programs: chats, keys, notes, and what was made to harm."""

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import Config
from bot.identity import Books, Policy, PolicySnapshot
from bot.identity.policy import local_zone
from bot.importing import chatgpt, claude, marking
from bot.importing.exports import DAMAGED, NoList, elements
from bot.importing.openclaw import home, people, proposal, transcripts
from bot.importing.storing import Owner
from bot.importing.values import MAX_TEXT, Skipped, Talk
from bot.memory import markdown
from tests.fakes import exports
from tests.support import make_config

AT = int(exports.BEGAN * 1000)


def gpt(data: object) -> Talk:
    found = chatgpt.talk_of(data)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, Talk)
    return found


def cl(data: object) -> Talk:
    found = claude.talk_of(data)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, Talk)
    return found


def texts(talk: Talk) -> list[tuple[str, str]]:
    return [(said.role, said.text) for said in talk.said]


def test_a_conversation_of_chatgpt_is_read_in_order_with_its_dates():
    talk = gpt(exports.chatgpt("c1", "我的船叫水母", "A fine name.", "Is it?", title="Boats"))
    assert (talk.source, talk.id, talk.title) == ("chatgpt", "c1", "Boats")
    assert texts(talk) == [
        ("user", "我的船叫水母"),
        ("assistant", "A fine name."),
        ("user", "Is it?"),
    ]
    assert [said.at for said in talk.said] == [AT, AT + 60_000, AT + 120_000]
    assert talk.said[0].id == "c1-0"


def test_of_a_tree_the_branch_that_was_seen_last_is_read():
    data = exports.chatgpt("c1", "hello", "first answer")
    again = exports.gpt_message("again", "assistant", "another answer", exports.BEGAN + 90)
    exports.add(data["mapping"], "again", "c1-0", again)
    assert texts(gpt(data))[-1] == ("assistant", "first answer")
    assert texts(gpt({**data, "current_node": "again"}))[-1] == ("assistant", "another answer")
    for lost in (None, "gone", 7):  # then the newest one counts
        assert texts(gpt({**data, "current_node": lost}))[-1] == ("assistant", "another answer")


def test_a_tree_that_goes_round_in_a_circle_is_read_once():
    data = exports.chatgpt("c1", "hello", "hi")
    data["mapping"]["root"]["parent"] = "c1-1"
    assert len(gpt(data).said) == 2


def test_what_tools_said_and_what_was_hidden_is_left_out():
    data = exports.chatgpt("c1", "draw a cat")
    nodes, at = data["mapping"], exports.BEGAN
    code = {"content_type": "code", "text": "draw()"}
    hidden = {"is_visually_hidden_from_conversation": True}
    for number, message in enumerate(
        (
            exports.gpt_message("x", "assistant", "to a tool", at, recipient="dalle.text2im"),
            exports.gpt_message("x", "tool", "from a tool", at),
            exports.gpt_message("x", "assistant", "", at, content=code),
            exports.gpt_message("x", "user", "hidden", at, metadata=hidden),
            exports.gpt_message("end", "assistant", "Here it is.", at + 99),
        )
    ):
        parent = "c1-0" if not number else f"n{number - 1}"
        exports.add(nodes, f"n{number}", parent, message)
    talk = gpt({**data, "current_node": "n4"})
    assert texts(talk) == [("user", "draw a cat"), ("assistant", "Here it is.")]


def test_of_pictures_and_voice_what_can_be_read_is_read():
    data = exports.chatgpt("c1", "x")
    parts = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f"},
        {"content_type": "audio_transcription", "text": "what is this?"},
    ]
    message = data["mapping"]["c1-0"]["message"]
    message["content"] = {"content_type": "multimodal_text", "parts": parts}
    assert texts(gpt(data)) == [("user", "what is this?")]
    message["content"]["parts"] = parts[:1]
    assert (gpt(data).said, gpt(data).left) == ((), 1)


def test_a_conversation_of_claude_is_read_with_what_was_pasted():
    data = exports.claude("c1", "look at this", "I see.", name="Notes")
    pasted = {"file_name": "paste.txt", "extracted_content": "the tide is at six"}
    data["chat_messages"][0]["attachments"] = [pasted]
    data["chat_messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "hm"})
    talk = cl(data)
    assert (talk.source, talk.id, talk.title) == ("claude", "c1", "Notes")
    assert texts(talk) == [
        ("user", "look at this\n\n[paste.txt]\nthe tide is at six"),
        ("assistant", "I see."),
    ]
    assert [said.at for said in talk.said] == [AT, AT + 60_000]


def test_an_older_export_of_claude_has_texts_and_no_blocks():
    data = exports.claude("c1", "hello", "hi")
    for message in data["chat_messages"]:
        del message["content"], message["parent_message_uuid"]
    assert texts(cl(data)) == [("user", "hello"), ("assistant", "hi")]


def test_of_a_message_of_claude_that_was_edited_the_newest_counts():
    data = exports.claude("c1", "helo", "hi", "how are you?")
    later = exports.BEGAN + 500
    edited = exports.claude_message("e", "human", "hello", later, exports.ROOT)
    answer = exports.claude_message("f", "assistant", "good day", later + 60, "e")
    again = exports.claude_message("g", "assistant", "good morning", later + 90, "e")
    data["chat_messages"] += [edited, answer, again]
    assert texts(cl(data)) == [("user", "hello"), ("assistant", "good morning")]
    seen = {**data, "current_leaf_message_uuid": "f"}
    assert texts(cl(seen)) == [("user", "hello"), ("assistant", "good day")]


def test_a_message_without_a_time_has_that_of_the_one_before_it():
    data = exports.chatgpt("c1", "one", "two", "three")
    for bad in (None, "yesterday", 1e300, float("nan"), -5, True):
        data["mapping"]["c1-1"]["message"]["create_time"] = bad
        assert [said.at for said in gpt(data).said] == [AT, AT, AT + 120_000]


def test_a_conversation_without_any_time_is_told():
    data = exports.chatgpt("c1", "one", create_time=None)
    data["mapping"]["c1-0"]["message"]["create_time"] = None
    assert chatgpt.talk_of(data) == Skipped("Talk c1", "nothing in it says when it was")


def test_a_message_that_is_too_long_is_cut_and_says_so():
    talk = gpt(exports.chatgpt("c1", "x" * (MAX_TEXT + 5)))
    assert talk.said[0].text.endswith("[… 5 characters were left out by the import]")


def test_what_no_database_takes_is_put_right():
    talk = gpt(exports.chatgpt("c1", "a\0b \ud83d", title="half \udc00"))
    assert talk.said[0].text == "ab \ufffd"
    assert talk.title == "half \ufffd"


def test_two_messages_with_one_id_are_one_and_those_without_are_told_apart():
    data = exports.claude("c1", "one", "two", "one")
    for message in data["chat_messages"]:
        message["uuid"] = ""
        message["parent_message_uuid"] = ""
    first = cl(data)
    assert [said.text for said in first.said] == ["one", "two", "one"]
    assert first == cl(data)
    for message in data["chat_messages"]:
        message["uuid"] = "same"
    assert [said.text for said in cl(data).said] == ["one"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("mapping", "message", "content", "parts", "author", "role", "parent"),
                    *("children", "create_time", "current_node", "id", "text", "type"),
                    *("chat_messages", "sender", "attachments", "uuid", "created_at"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON, JSON)
def test_whatever_stands_where_a_conversation_should_ends_without_an_error(one, other, last):
    for data in (one, {"mapping": one, "create_time": other}, {"mapping": {"a": one, "b": other}}):
        if isinstance(data, dict):
            chatgpt.talk_of({"current_node": "a", **data})
    for data in (one, {"chat_messages": one}, {"chat_messages": [one, other, last]}):
        if isinstance(data, dict):
            claude.talk_of(data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TALK = {"uuid": "1", "name": 'a "b" \\ [c]', "chat_messages": [{"uuid": "2"}, {"uuid": "3"}]}
TALKS = [{**TALK, "uuid": str(number)} for number in range(5)]


def taken(data: bytes, size: int = 7, limit: int = 1_000_000) -> list[Any]:
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return list(elements(pieces, "chat_messages", limit))


def numbers(found: list[Any]) -> list[str]:
    return [each if isinstance(each, str) else each["uuid"] for each in found]


@given(
    st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_list_in_any_pieces_comes_apart_into_its_elements(values, size, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert taken(data, size) == json.loads(data)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_bytes_that_are_no_json_end_without_an_error(data, size):
    taken(b"[" + data, size)


def test_what_is_no_list_is_told():
    for data in (b"", b"  ", b'{"a": []}', b"\x00[1]", b"nothing"):
        with pytest.raises(NoList):
            taken(data)


def test_a_mark_of_the_byte_order_before_the_list_is_read_over():
    assert taken(b'\xef\xbb\xbf \n[{"a": 1}, {}]\n') == [{"a": 1}, {}]


def test_an_element_that_is_too_long_or_no_object_is_told_and_the_rest_is_read():
    long = {**TALK, "name": "x" * 5000}
    data = json.dumps([TALK, long, TALK, 7, TALK]).encode()
    assert taken(data, limit=1000) == [TALK, DAMAGED, TALK, DAMAGED, TALK]


def test_a_list_that_ends_in_the_middle_keeps_what_came_before():
    assert taken(json.dumps([TALK, TALK]).encode()[:-20]) == [TALK, DAMAGED]


@pytest.mark.parametrize(
    ("right", "wrong"), [('"uuid": "1", "name"', '"uuid": [["1", "name"'), ('"1", "n', '"1, "n')]
)
def test_where_a_bracket_or_a_quote_is_missing_those_behind_it_are_read(right, wrong):
    data = json.dumps(TALKS).replace(right, wrong, 1).encode()
    assert numbers(taken(data, 50)) == ["0", DAMAGED, "2", "3", "4"]


def test_of_a_list_that_ends_too_early_what_stands_behind_it_is_read():
    first, *rest = map(json.dumps, TALKS)
    data = f"[{first}}}], {', '.join(rest)}]".encode()
    assert numbers(taken(data, 50)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("data", [b'{"id":', b'[{"id":', b'{"id": 1}, [', b'{"id": "'])
def test_looking_for_what_can_be_read_ends_however_often_it_fails(data):
    assert len(taken(b"[" + data * 50_000, 4096)) <= 50_001


LINKS = {"owner": ["telegram:7"], "identity_links": {"ada": ["telegram:42", "discord:77"]}}


@pytest.fixture
def snapshot(tmp_path) -> PolicySnapshot:
    config: Config = make_config(tmp_path, session=LINKS)[0]
    return PolicySnapshot.of(Policy.of(config, local_zone(config)), Books())


ROOM = "agent:main:telegram:group:-1001"


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("agent:main:main", Owner("main")),
        ("agent:work:main", Owner("main")),
        ("main", Owner("main")),
        ("agent:main:dashboard:8f1e", Owner("main")),
        ("agent:main:webchat:direct:abc", Owner("main")),
        ("agent:main:telegram:direct:42", Owner("ada")),
        ("agent:main:telegram:dm:42", Owner("ada")),
        ("agent:main:discord:work:direct:77:thread:5", Owner("ada")),
        ("agent:main:telegram:direct:7", Owner("main")),
        ("agent:main:whatsapp:direct:+15551234", Owner("whatsapp:+15551234")),
        ("AGENT:Main:Telegram:Group:-1001", Owner(room=ROOM)),
        ("agent:other:telegram:group:-1001", Owner(room=ROOM)),
        ("agent:main:telegram:group:-1001:topic:9", Owner(room=f"{ROOM}:topic:9")),
        ("agent:main:discord:channel:5", Owner(room="agent:main:discord:channel:5")),
        ("agent:main:nextcloud-talk:room:abc", Owner(room="agent:main:nextcloud_talk:group:abc")),
        ("agent:main:direct:42", None),
        ("agent:main:cron:weather:run:1", None),
        ("agent:main:subagent:1f", None),
        ("cron:weather", None),
        ("hook:1", None),
        ("group:-1001", None),
        ("+15551234", None),
        ("global", None),
        ("", None),
        ("agent:main", None),
        ("::::", None),
    ],
)
def test_a_key_says_whose_its_session_is(snapshot, key, owner):
    assert people.owner_of(people.parse(key), snapshot) == owner


def test_what_was_done_by_itself_is_work_and_not_unclear():
    assert people.parse("agent:main:cron:x").is_work
    assert not people.parse("group:1").is_work
    assert people.parse("group:1").is_unclear


LINES = st.sampled_from(
    [
        *("", "", "# Title", "## Part", "- an entry", "  more of it", "* another", "plain words"),
        *("second line", "```", "| a | b |", "- [ ] a box", "1. first", "> quoted", "    code"),
        *("- said <!-- owner -->", "x <!-- agent 2026-01-01 -->", "- z <!-- untrusted -->"),
    ]
)
NOTES = st.lists(LINES, max_size=14).map("\n".join)


def words(text: str) -> list[str]:
    return markdown.plain(text).split()


@given(NOTES, st.sampled_from(["", "2026-01-09"]))
def test_nothing_of_a_note_is_lost_and_a_second_time_adds_nothing(text, day):
    pieces = marking.pieces(text)
    once = marking.merged("", pieces, (), day)
    for piece in pieces:
        if not piece.is_heading:
            assert piece.digest in {each.digest for each in marking.pieces(once)}
    assert marking.merged(once, pieces, (), day) == once
    assert marking.merged("", pieces, [piece.digest for piece in pieces], day) == ""


@given(NOTES)
def test_nothing_is_said_to_be_the_persons(text):
    done = marking.merged("", marking.pieces(text), (), "2026-01-09")
    shown, _ = markdown.attributed(done)
    assert not re.search(r"\((said|concluded)", shown)
    for item in markdown.items(done):
        by = markdown.mark_of(done.split("\n")[item.start]).split(" ")[0]
        assert by in {"imported", "untrusted"}


@given(NOTES, NOTES)
def test_what_stood_there_stays_as_it_was(before, text):
    done = marking.merged(before, marking.pieces(text), (), "")
    assert done == before or done.startswith(before.rstrip())


@pytest.mark.parametrize(
    "forged",
    [
        "- x <!-- owner -->",
        "- x <!--owner 2026-01-01-->",
        "- x <!-- ow<!-- owner -->ner -->",
        "- x <!-- agent --> <!-- owner -->",
        "- x <!-- <!-- owner --> owner -->",
    ],
)
def test_no_mark_is_taken_from_elsewhere(forged):
    done = marking.merged("", marking.pieces(forged), (), "")
    assert markdown.mark_of(done) == "imported"
    assert "said" not in markdown.attributed(done)[0]


def test_a_piece_that_is_no_entry_bears_its_mark_at_its_end():
    text = "First line\nsecond line\n\n```\n- code\n```\n\n| a |\n| b |\n"
    assert marking.merged("", marking.pieces(text), (), "") == (
        "First line\nsecond line <!-- imported -->\n\n```\n- code\n```\n<!-- imported -->\n\n"
        "| a |\n| b |\n<!-- imported -->\n"
    )


NAMES = st.sampled_from(
    [
        *("agents", "defaults", "model", "primary", "session", "dmScope", "identityLinks", "reset"),
        *("mode", "atHour", "idleMinutes", "channels", "telegram", "discord", "nextcloud-talk"),
        *("nextcloud_talk", "botToken", "dmPolicy", "allowFrom", "groups", "requireMention", "dm"),
        *("policy", "commands", "ownerAllowFrom", "enabled", "*", "a b", 'q"\n]', "userTimezone"),
        *("type", "message", "role", "content", "text", "timestamp", "id", "-1001", "\ud83d"),
    ]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["open", "main", "daily", "telegram:42", "user", "assistant", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)
SETTINGS = st.dictionaries(NAMES, JSON_VALUES, max_size=6)


@given(SETTINGS)
def test_whatever_stands_in_its_settings_the_proposal_is_toml(settings):
    tomllib.loads(proposal.proposed(settings))


@given(st.lists(JSON_VALUES, max_size=6))
def test_whatever_stands_in_a_transcript_is_read(found):
    for said in transcripts.said_in(found):
        assert said is None or said.text


@given(st.text(alphabet="{}[]:,'\"/*\\ \n ab1", max_size=60))
def test_whatever_stands_in_a_settings_file_is_read(text):
    home.parse(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", [",/*", '\\"', "'", "/*", ", ", '",', ",//\n"])
def test_a_settings_file_that_nothing_closes_is_read_at_once(part):
    text = "{" + part * (home.MAX_SETTINGS // len(part))
    assert home.parse(text) is None
    assert home.parse('"' + text) is None


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "part", ["<!-- ow", "<!--", "- x <!-- owner ", "```\n", "| a\n", "# h\na\n"]
)
def test_a_long_note_of_anything_is_marked_at_once(part):
    text = part * (200_000 // len(part))
    assert marking.merged("", marking.pieces(text), (), "2026-01-09")
