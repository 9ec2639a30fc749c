"""What is read of other programs: chats, keys, notes, and what was made to harm."""

import json
import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import Config
from bot.errors import ImportRefused
from bot.identity import Books, Policy, PolicySnapshot
from bot.identity.conversation import local_zone
from bot.importing import exports as reading
from bot.importing import values
from bot.importing.exports import DAMAGED, elements
from bot.importing.formats import chatgpt_talk, claude_memory, claude_project, claude_talk
from bot.importing.openclaw import home, jobs, moving, people, transcripts
from bot.importing.storing import Owner
from bot.importing.values import MAX_TEXT, Left, Remembered, Skipped, Talk
from bot.memory import markdown
from tests.fakes import exports
from tests.odd import EXACT_JSON, WORDS, json_of
from tests.support import make_config, write_file

AT = int(exports.BEGAN * 1000)


def only(found: Iterable[values.Found]) -> Talk:
    (talk,) = [each for each in found if isinstance(each, Talk)]
    return talk


def gpt(data: object) -> Talk:
    return only(chatgpt_talk(data))  # pyright: ignore[reportArgumentType]


def cl(data: object) -> Talk:
    return only(claude_talk(data))  # pyright: ignore[reportArgumentType]


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
    assert (gpt(data).said, gpt(data).left) == ((), {Left.WORDLESS: 1})


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


def test_a_conversation_without_any_time_stays_without():
    data = exports.chatgpt("c1", "one", create_time=None)
    data["mapping"]["c1-0"]["message"]["create_time"] = None
    assert [said.at for said in gpt(data).said] == [0]


def test_a_node_that_is_missing_or_broken_costs_only_itself():
    for broken in ("gone", None, "text", {"message": "text"}):
        data = exports.chatgpt("c1", "one", "two", "three", "four")
        nodes = data["mapping"]
        if broken == "gone":
            del nodes["c1-1"]
        else:
            nodes["c1-1"] = broken
        talk = gpt(data)
        assert [said.text for said in talk.said] == ["one", "three", "four"], broken
        assert talk.left == {Left.BROKEN: 1}, broken


def test_a_message_of_claude_that_is_missing_or_broken_costs_only_itself():
    for broken in ("gone", None, "text", {}):
        data = exports.claude("c1", "one", "two", "three", "four")
        again = exports.claude_message("e", "assistant", "newer", exports.BEGAN + 999, "c1-2")
        data["chat_messages"].append(again)
        if broken == "gone":
            del data["chat_messages"][1]
        else:
            data["chat_messages"][1] = broken
        talk = cl(data)
        assert [said.text for said in talk.said] == ["one", "three", "newer"], broken
        lost = {} if broken == "gone" else {Left.BROKEN: 1}
        assert talk.left == {Left.BRANCHED: 1, **lost}, broken


def test_what_is_left_out_is_counted_by_why():
    data = exports.chatgpt("c1", "draw a cat", "first", "and then?")
    nodes, at = data["mapping"], exports.BEGAN
    hidden = {"is_visually_hidden_from_conversation": True}
    code = {"content_type": "code", "text": "draw()"}
    exports.add(nodes, "x", "c1-0", exports.gpt_message("x", "assistant", "other", at))
    for name, message in {
        "t": exports.gpt_message("t", "tool", "from a tool", at),
        "h": exports.gpt_message("h", "assistant", "", at, content={"content_type": "thoughts"}),
        "c": exports.gpt_message("c", "assistant", "x", at, recipient="python"),
        "code": exports.gpt_message("code", "assistant", "", at, content=code),
        "hidden": exports.gpt_message("hidden", "user", "hidden", at, metadata=hidden),
        "d": exports.gpt_message("c1-0", "user", "an id again", at),
    }.items():
        exports.add(nodes, name, data["current_node"], message)
        data["current_node"] = name
    talk = gpt(data)
    assert talk.left == {Left.BRANCHED: 1, Left.BY_TOOLS: 3, Left.THOUGHTS: 1, Left.TWICE: 1}
    assert [text for _, text in texts(talk)] == ["draw a cat", "first", "and then?"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("It rains \ue200cite\ue202turn0search1\ue202turn0news2\ue201.", "It rains."),
        ("So【4:0†source.pdf】, yes【12†L3-L5】", "So, yes"),
        ('In \ue200entity\ue202["city","Kiel","a town"]\ue201 by the sea', "In Kiel by the sea"),
        ("【not a mark】 stays", "【not a mark】 stays"),
        ("\ue200open", "\ue200open"),
    ],
)
def test_marks_that_the_page_shows_as_links_are_no_part_of_an_answer(text, plain):
    talk = gpt(exports.chatgpt("c1", text, text))
    assert [said.text for said in talk.said] == [text, plain]


def test_a_document_of_the_canvas_comes_and_a_change_of_a_part_of_it_is_counted():
    # The calls as ChatGPT makes them: a name, a type and a content, then updates with patterns.
    data = exports.chatgpt("c1", "write it")
    calls = [
        ("create_textdoc", {"name": "Log", "type": "document", "content": "Day one"}),
        ("update_textdoc", {"updates": [{"pattern": "one", "replacement": "two"}]}),
        ("update_textdoc", {"updates": [{"pattern": ".*", "replacement": "Day three"}]}),
    ]
    for number, (tool, call) in enumerate(calls):
        content = {"content_type": "code", "text": json.dumps(call)}
        message = exports.gpt_message(
            f"k{number}",
            "assistant",
            "",
            exports.BEGAN + 9,
            content=content,
            recipient=f"canmore.{tool}",
        )
        exports.add(data["mapping"], f"k{number}", data["current_node"], message)
        data["current_node"] = f"k{number}"
    talk = gpt(data)
    assert [said.text for said in talk.said] == ["write it", "[Log]\nDay one", "Day three"]
    assert talk.left == {Left.BY_TOOLS: 1}


def test_what_chatgpt_saved_and_was_told_is_remembered():
    # `bio` is the tool that saves; the other two are what each conversation is begun with.
    data = exports.chatgpt("c1", "I sail")
    at = exports.BEGAN + 60
    instructions = {
        "content_type": "user_editable_context",
        "user_profile": "The user provided the following information: ```I sail```",
        "user_instructions": "The user provided the additional info: ```Be brief```",
    }
    own = {"about_user_message": "I sail", "about_model_message": "Be brief"}
    about = {"user_context_message_data": own, "is_user_system_message": True}
    context = {"content_type": "model_editable_context", "model_set_context": "1. Likes rope."}
    for name, message in {
        "b": exports.gpt_message("b", "assistant", "User has a boat", at, recipient="bio"),
        "t": exports.gpt_message("t", "tool", "Model set context updated.", at),
        "u": exports.gpt_message("u", "user", "", at, content=instructions, metadata=about),
        "m": exports.gpt_message("m", "assistant", "", at, content=context),
    }.items():
        exports.add(data["mapping"], name, data["current_node"], message)
        data["current_node"] = name
    found = [each for each in chatgpt_talk(data) if isinstance(each, Remembered)]
    assert [(each.path, each.text, each.is_newest, each.at) for each in found] == [
        ("MEMORY.md", "- User has a boat", False, AT + 60_000),
        ("USER.md", "I sail", True, AT + 60_000),
        ("USER.md", "Be brief", True, AT + 60_000),
        ("MEMORY.md", "1. Likes rope.", True, AT + 60_000),
    ]
    assert texts(gpt(data)) == [("user", "I sail")]


def test_documents_that_claude_wrote_and_what_was_spoken_come():
    data = exports.claude("c1", "", "Here.")
    data["chat_messages"][0]["content"] = [{"type": "voice_note", "title": "", "text": "hello"}]
    asked = {"id": "log", "type": "text/markdown", "title": "Log", "command": "create"}
    data["chat_messages"][1]["content"] += [
        {"type": "tool_use", "name": "artifacts", "input": {**asked, "content": "Day one"}},
        {"type": "tool_use", "name": "web_search", "input": {"query": "tides"}},
    ]
    assert texts(cl(data)) == [("user", "hello"), ("assistant", "Here.\n\n[Log]\nDay one")]


def test_what_claude_remembered_and_its_projects_become_notes():
    # memories.json and projects.json as Claude exports them since 2025.
    memory = {
        "conversations_memory": "**Work context**\n\nAda sails.",
        "project_memories": {"0a/../b": "Paint the hull."},
        "account_uuid": "a",
    }
    found = list(claude_memory(memory))
    assert [(each.path, each.text) for each in found if isinstance(each, Remembered)] == [
        ("MEMORY.md", "**Work context**\n\nAda sails."),
        ("memory/claude/project-0a-..-b.md", "Paint the hull."),
    ]
    project = {
        "uuid": "0a",
        "name": "Boat",
        "description": "",
        "prompt_template": "Answer as a sailor.",
        "created_at": exports.iso(exports.BEGAN),
        "docs": [{"uuid": "d", "filename": "../Sails.md", "content": "Red ones."}, {}, None],
    }
    kept = [each for each in claude_project(project) if isinstance(each, Remembered)]
    assert [(each.path, each.text, each.at) for each in kept] == [
        ("memory/claude/project-0a.md", "Answer as a sailor.", AT),
        ("memory/claude/project-0a/sails.md", "Red ones.", AT),
    ]


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


def as_read(data: dict[str, Any], tmp_path: Path, me: str = "") -> list[Talk]:
    """What comes of a file, found to be what it is."""
    path = tmp_path / "export.json"
    path.write_text(json.dumps(data))
    found = list(reading.look(path, me=me).talks())
    assert all(isinstance(each, Talk) for each in found)
    return [each for each in found if isinstance(each, Talk)]


@pytest.mark.parametrize("source", ["openwebui", "librechat", "astrbot"])
def test_every_assistants_export_is_known_by_its_content(source, tmp_path):
    data = getattr(exports, source)("c1", "我的船", "Nice.", "Is it?", "Yes.")
    (talk,) = as_read(data, tmp_path)
    assert (talk.source, talk.id, talk.title) == (source, "c1", "Talk c1")
    assert texts(talk) == [
        ("user", "我的船"),
        ("assistant", "Nice."),
        ("user", "Is it?"),
        ("assistant", "Yes."),
    ]
    step = 0 if source == "astrbot" else 60_000  # it keeps no times of messages
    assert [said.at for said in talk.said] == [AT + step * number for number in range(4)]


def test_of_a_chat_of_open_webui_the_branch_that_was_seen_last_is_read_without_thinking(tmp_path):
    data = exports.openwebui("c1", "hello", "hi")
    history = data["chat"]["history"]
    folded = '<details type="reasoning" done="true">\n<summary>Thought</summary>\nhm\n</details>\n'
    other = {**history["messages"]["c1-1"], "id": "b", "content": f"{folded}good day"}
    history["messages"]["b"] = other
    history["messages"]["c1-0"]["childrenIds"].append("b")
    history["currentId"] = "b"
    (talk,) = as_read(data, tmp_path)
    assert texts(talk) == [("user", "hello"), ("assistant", "good day")]
    assert talk.left == {Left.BRANCHED: 1}


def test_messages_of_librechat_may_stand_below_one_another(tmp_path):
    data = exports.librechat("c1", "one", "two", "three")
    inner: list[Any] = []
    for message in reversed(data["messages"]):
        inner = [{**message, "children": inner}]
    data |= {"messages": inner, "recursive": True}
    (talk,) = as_read(data, tmp_path)
    assert [said.text for said in talk.said] == ["one", "two", "three"]


def test_a_chat_of_telegram_says_who_said_what(tmp_path):
    data = exports.telegram(42, ("Ada", "my boat leaks"), ("Bo", "again?"), ("Ada", ""))
    data["messages"][1]["text"] = ["ag", {"type": "bold", "text": "ain?"}]
    data["messages"].append({"id": 9, "type": "service", "action": "phone_call"})
    (talk,) = as_read(data, tmp_path)
    assert (talk.source, talk.title) == ("telegram", "Bo")
    assert [(said.role, said.by, said.text, said.at) for said in talk.said] == [
        ("user", "", "my boat leaks", AT),
        ("assistant", "Bo", "again?", AT + 60_000),
    ]
    assert talk.left == {Left.WORDLESS: 1, Left.SERVICE: 1}


@pytest.mark.parametrize(("me", "roles"), [("", ["assistant"] * 2), ("Ada", ["user", "assistant"])])
def test_in_a_group_a_name_says_who_is_oneself(tmp_path, me, roles):
    data = exports.telegram(42, ("Ada", "I am late"), ("Cy", "no wonder"), kind="private_group")
    (talk,) = as_read(data, tmp_path, me)
    assert [said.role for said in talk.said] == roles
    assert talk.said[-1].by == "Cy"
    assert bool(talk.assumed) == (not me)


def test_all_that_telegram_holds_of_somebody_is_read_chat_by_chat(tmp_path):
    chats = [exports.telegram(id_, ("Ada", f"number {id_}")) for id_ in (1, 2)]
    news = exports.telegram(3, ("Bo", "news"), kind="public_channel")
    data = {
        "about": "Here is the data you requested.",
        "personal_information": {"user_id": 7, "first_name": "Ada"},
        "contacts": {"about": "…", "list": [{"user_id": 42, "first_name": "Bo"}]},
        "chats": {"about": "This page lists all chats.", "list": [*chats, news]},
        "left_chats": {"about": "…", "list": []},
    }
    path = tmp_path / "result.json"
    path.write_text(json.dumps(data, indent=1))
    found = list(reading.look(path).talks())
    assert [one.said[0].text for one in found if isinstance(one, Talk)] == ["number 1", "number 2"]
    assert [one for one in found if not isinstance(one, Talk)] == [
        Skipped("Crew", "a channel is no conversation")
    ]


IPHONE = (
    "\ufeff[01.05.24, 09:14:00] Bo: \u200eMessages and calls are end-to-end encrypted.\r\n"
    "[01.05.24, 09:14:05] ~\u202fAda: hello\r\nand more: lines\r\n"
    "\u200e[13.05.24, 21:15:00] Bo: \u200eimage omitted\r\n"
    "[13.05.24, 21:16:00] Bo: fine \u200e<This message was edited>\r\n"
)
ANDROID = (
    "5/1/24, 9:14\u202fAM - Messages and calls are end-to-end encrypted.\n"
    "5/1/24, 9:14\u202fAM - Ada: hello\nand more: lines\n"
    "5/13/24, 9:15\u202fPM - Bo: <Media omitted>\n"
    "5/13/24, 9:16\u202fPM - Bo: fine\n"
)
CHINESE = (
    "2024/5/1 09:14 - Ada: hello\nand more: lines\n2024/5/13 21:15 - Bo: <媒体内容已省略>\n"
    "2024/5/13 21:16 - Bo: fine\n"
)


@pytest.mark.parametrize(
    ("text", "order", "seconds"),
    [
        (IPHONE, "day/month/year", 5),
        (ANDROID, "month/day/year", 0),
        (CHINESE, "year/month/day", 0),
    ],
)
def test_a_chat_of_whatsapp_is_read_with_the_order_that_all_of_its_dates_have(
    text, order, seconds, tmp_path
):
    path = tmp_path / "WhatsApp Chat with Bo.txt"
    path.write_text(text)
    export = reading.look(path, zone=ZoneInfo("Europe/Berlin"))
    (talk,) = export.talks()
    assert isinstance(talk, Talk)
    assert (export.source, talk.title) == ("whatsapp", "WhatsApp Chat with Bo")
    first = datetime(2024, 5, 1, 7, 14, seconds, tzinfo=UTC)
    last = datetime(2024, 5, 13, 19, 16, tzinfo=UTC)
    assert [(said.role, said.by, said.text, said.at) for said in talk.said] == [
        ("user", "", "hello\nand more: lines", int(first.timestamp()) * 1000),
        ("assistant", "Bo", "fine", int(last.timestamp()) * 1000),
    ]
    assert talk.assumed == f"Dates of WhatsApp are read as {order}"


def test_where_nothing_says_the_order_of_dates_it_is_said(tmp_path):
    path = tmp_path / "_chat.txt"
    path.write_text("[01/02/2024, 09:00:00] Ada: a\n[01/02/2024, 09:00:00] Ada: a\n")
    (talk,) = reading.look(path, me="Ada").talks()
    assert isinstance(talk, Talk)
    assert talk.assumed.endswith("day/month/year, as nothing in a chat says what they are")
    assert [said.role for said in talk.said] == ["user", "user"]
    assert len({said.id for said in talk.said}) == 2


def test_dates_in_order_decide_between_two_that_are_possible(tmp_path):
    path = tmp_path / "_chat.txt"
    days = ["1/9/24", "1/10/24", "2/1/24", "2/3/24"]  # 9 January to 3 February
    path.write_text("".join(f"{day}, 9:00 AM - Ada: a\n" for day in days))
    (talk,) = reading.look(path).talks()
    assert isinstance(talk, Talk)
    assert "Dates of WhatsApp are read as month/day/year" in talk.assumed


def test_anything_else_comes_as_jsonl(tmp_path):
    path = tmp_path / "mine.jsonl"
    talk = {
        "id": "1",
        "title": "Boats",
        "messages": [
            {"role": "user", "text": "hello", "at": "2024-05-01T08:00:00Z"},
            {"role": "assistant", "content": "hi", "at": exports.BEGAN},
            {"role": "assistant", "text": "me too", "by": "Bo"},
            "broken",
        ],
    }
    memory = {"memory": "The boat is red", "at": "2024-05-01T08:00:00Z"}
    path.write_text(f"{json.dumps(talk)}\n{{broken\n{json.dumps(memory)}\n")
    first, damaged, last = reading.look(path).talks()
    assert isinstance(first, Talk)
    assert [(said.role, said.by, said.at) for said in first.said] == [
        ("user", "", AT),
        ("assistant", "", AT),
        ("assistant", "Bo", AT),
    ]
    assert first.left == {Left.BROKEN: 1}
    assert damaged == Skipped("conversation 2 of mine.jsonl", DAMAGED)
    assert last == Remembered("MEMORY.md", "Imported", "- The boat is red", AT)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (  # Hermes: ~/.hermes/memories, entries between lines with a section sign
            {"memories/MEMORY.md": "The boat is red\n§\nHas a dog\nnamed Rex", "SOUL.md": "x"},
            {"MEMORY.md": "- The boat is red\n- Has a dog\n  named Rex"},
        ),
        (  # nanobot: ~/.nanobot/workspace, with skills and files about itself
            {
                "AGENTS.md": "x",
                "USER.md": "# User\n- Ada",
                "memory/MEMORY.md": "- sails",
                "memory/HISTORY.md": "[2026-02-19 10:00] Talked of boats.",
                "skills/boat/SKILL.md": "x",
            },
            {
                "USER.md": "# User\n- Ada",
                "MEMORY.md": "- sails",
                "memory/HISTORY.md": "[2026-02-19 10:00] Talked of boats.",
            },
        ),
        (  # any folder of Markdown
            {"Boats/Red.md": "It leaks.", "day.md": "hi", ".trash/old.md": "x", "a.txt": "x"},
            {"memory/Boats/Red.md": "It leaks.", "memory/day.md": "hi"},
        ),
    ],
)
def test_a_folder_of_notes_comes_under_names_that_notes_have_here(files, expected, tmp_path):
    for name, text in files.items():
        write_file(tmp_path / name, text)
    export = reading.look(tmp_path)
    found = [each for each in export.talks() if isinstance(each, Remembered)]
    assert {each.path: each.text for each in found} == expected
    assert all(each.at for each in found)


def test_a_folder_of_openclaw_is_named(tmp_path):
    (tmp_path / "openclaw.json").write_text("{}")
    with pytest.raises(ImportRefused, match="import openclaw"):
        reading.look(tmp_path)


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("30 8 * * *", "FREQ=DAILY;BYHOUR=8;BYMINUTE=30"),
        ("0 */6 * * *", "FREQ=DAILY;BYHOUR=0,6,12,18;BYMINUTE=0"),
        ("*/30 9-10 * * *", "FREQ=DAILY;BYHOUR=9,10;BYMINUTE=0,30"),
        ("0 9 * * SUN,3", "FREQ=WEEKLY;BYDAY=WE,SU;BYHOUR=9;BYMINUTE=0"),
        ("0 9 * * 0-6/2", "FREQ=WEEKLY;BYDAY=TU,TH,SA,SU;BYHOUR=9;BYMINUTE=0"),
        ("0 9 1,15 * *", "FREQ=MONTHLY;BYMONTHDAY=1,15;BYHOUR=9;BYMINUTE=0"),
        ("0 9 1 * 1", None),
        ("0 9 * *", None),
        ("61 9 * * *", None),
        ("0 5-3 * * *", None),
        ("0 9 L * *", None),
        (f"0 9 * * {'1,' * 200}1", None),
        ("0/99999999999 9 * * *", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0"),
    ],
)
def test_a_cron_expression_is_a_rule_here(expression, rule):
    if rule is None:
        with pytest.raises(ValueError, match=r"its cron expression|it comes on days"):
            jobs.rule_of(expression)
    else:
        assert str(jobs.rule_of(expression)) == rule


@given(st.text(max_size=30))
def test_any_text_is_a_rule_or_none(text):
    with suppress(ValueError):
        jobs.rule_of(text)


def test_settings_with_nothing_like_them_here_are_listed_without_what_they_say():
    text = moving.proposed(
        {
            "session": {"dmScope": "main", "typingMode": "secret"},
            "tools": {"exec": {"token": "secret"}},
            "channels": {"telegram": {"enabled": True}, "signal": {"account": "secret"}},
            "logging": "secret",
        }
    )
    assert "secret" not in text
    listed = text.split("without a counterpart here:\n")[1].splitlines()
    assert listed == ["# channels.signal", "# logging", "# session.typingMode", "# tools.exec"]
    assert tomllib.loads(text)["session"] == {"dm_scope": "main"}


FIELDS = st.sampled_from(
    [
        *("mapping", "message", "content", "parts", "author", "role", "parent"),
        *("children", "create_time", "current_node", "id", "text", "type"),
        *("chat_messages", "sender", "attachments", "uuid", "created_at"),
    ]
)
JSON = json_of(st.floats() | WORDS, FIELDS, 20)


@given(JSON, JSON, JSON)
def test_whatever_stands_where_a_conversation_should_ends_without_an_error(one, other, last):
    for data in (one, {"mapping": one, "create_time": other}, {"mapping": {"a": one, "b": other}}):
        if isinstance(data, dict):
            list(chatgpt_talk({"current_node": "a", **data}))
    for data in (one, {"chat_messages": one}, {"chat_messages": [one, other, last]}):
        if isinstance(data, dict):
            list(claude_talk(data))
    for reader in reading.READERS:
        if isinstance(one, dict):
            list(reader.read(one))
        list(reader.read({name: [one, other, last] for name in reader.fields}))
        list(reader.read({"history": one, "chat": {"history": {"messages": other}}}))


TALK = {"uuid": "1", "name": 'a "b" \\ [c]', "chat_messages": [{"uuid": "2"}, {"uuid": "3"}]}
TALKS = [{**TALK, "uuid": str(number)} for number in range(5)]


def taken(data: bytes, size: int = 7, limit: int = 1_000_000) -> list[Any]:
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return list(elements(pieces, limit))


def numbers(found: list[Any]) -> list[str]:
    return [each if isinstance(each, str) else each["uuid"] for each in found]


@given(
    st.lists(st.dictionaries(st.text(), EXACT_JSON, max_size=4), max_size=5),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_list_in_any_pieces_comes_apart_into_its_elements(values, size, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert taken(data, size) == json.loads(data)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_bytes_that_are_no_json_end_without_an_error(data, size):
    taken(b"[" + data, size)


def test_what_is_no_list_has_no_elements():
    for data in (b"", b"  ", b"\x00[1]", b"nothing"):
        assert taken(data) == []


def test_objects_may_stand_one_behind_the_other_and_a_damaged_line_costs_only_itself():
    lines = [json.dumps(TALK) for _ in range(3)]
    assert taken("\n".join(lines).encode()) == [TALK] * 3
    lines[1] = lines[1][:-9]
    assert taken("\n".join(lines).encode()) == [TALK, DAMAGED, TALK]


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
    pieces = values.pieces(text)
    once = values.merged("", pieces, (), day)
    for piece in pieces:
        if not piece.is_heading:
            assert piece.digest in {each.digest for each in values.pieces(once)}
    assert values.merged(once, pieces, (), day) == once
    assert values.merged("", pieces, [piece.digest for piece in pieces], day) == ""


@given(NOTES)
def test_nothing_is_said_to_be_the_persons(text):
    done = values.merged("", values.pieces(text), (), "2026-01-09")
    shown, _ = markdown.attributed(done)
    assert not re.search(r"\((said|concluded)", shown)
    for item in markdown.items(done):
        by = markdown.mark_of(done.split("\n")[item.start]).split(" ")[0]
        assert by in {"imported", "untrusted"}


@given(NOTES, NOTES)
def test_what_stood_there_stays_as_it_was(before, text):
    done = values.merged(before, values.pieces(text), (), "")
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
    done = values.merged("", values.pieces(forged), (), "")
    assert markdown.mark_of(done) == "imported"
    assert "said" not in markdown.attributed(done)[0]


def test_a_piece_that_is_no_entry_bears_its_mark_at_its_end():
    text = "First line\nsecond line\n\n```\n- code\n```\n\n| a |\n| b |\n"
    assert values.merged("", values.pieces(text), (), "") == (
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
JSON_VALUES = json_of(
    st.integers()
    | WORDS
    | st.sampled_from(["open", "main", "daily", "telegram:42", "user", "assistant", "message"]),
    NAMES,
    25,
)
SETTINGS = st.dictionaries(NAMES, JSON_VALUES, max_size=6)


@given(SETTINGS)
def test_whatever_stands_in_its_settings_the_proposal_is_toml(settings):
    tomllib.loads(moving.proposed(settings))


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
    text = part * (50_000 // len(part))
    assert values.merged("", values.pieces(text), (), "2026-01-09")
