"""What is read of one conversation of ChatGPT or Claude."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.importing import chatgpt, claude
from bot.importing.values import MAX_TEXT, Skipped, Talk
from tests.fakes import exports

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
