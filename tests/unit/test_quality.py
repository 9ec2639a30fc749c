"""Whether a summary still has what matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.context import quality
from bot.messages import Message, Text, ToolResult, ToolUse


def person(text: str) -> Message:
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


def missing(dropped: list[Message], summary: str) -> list[str]:
    return [item.text for item in quality.check(dropped, summary).missing]


TALK = [
    person("Dr. Okafor sees us on 14 May at 9:30, the file is https://clinic.example/a?id=3."),
    assistant("Noted."),
    person("The budget is €1,250 and the booking is QX7-331. My mother is called Ingrid."),
    assistant("Fine."),
]


def test_what_is_there_in_other_writing_is_not_missing():
    summary = (
        "2026-05-14, 9:30: Okafor (https://clinic.example/a?id=3). 1250 euros. qx7-331. INGRID."
    )
    assert missing(TALK, summary) == []


def test_what_is_gone_is_named_with_its_sentence():
    verdict = quality.check(TALK, "They see Okafor at 9:30.")
    assert {item.text for item in verdict.missing} == {
        "14 May",
        "https://clinic.example/a?id=3",
        "€1,250",
        "QX7-331",
        "Ingrid",
    }
    assert verdict.is_poor
    line = quality.mentioned(verdict.missing, 400)
    assert line.startswith("Also mentioned:\n- ")
    assert "QX7-331" in line
    assert "Ingrid" in line
    assert not quality.check(TALK, line + " Okafor").missing
    assert len(quality.mentioned(verdict.missing, 60)) <= 60 + len("Also mentioned:")
    assert quality.mentioned([], 400) == ""


def test_a_number_inside_another_does_not_count():
    assert missing([person("The door is 4711.")], "Call 047112.") == ["4711"]
    assert missing([person("The door is 4711.")], "Door: 4711") == []


def test_questions_nobody_answered_must_stay():
    talk = [
        person("What does the visa cost?"),
        assistant("I'm not sure, I will check."),
        person("Who painted the Mona Lisa?"),
        assistant("Leonardo."),
        person("And which bank should we take?"),
    ]
    found = missing(talk, "They talked about the Mona Lisa.")
    assert "What does the visa cost?" in found
    assert "And which bank should we take?" in found
    assert not any("painted" in item for item in found)
    assert missing(talk, "Open: cost of the visa; which bank to take. Mona Lisa") == []


def test_chinese_is_understood_too():
    talk = [person("我女儿叫小雨，5月14日去协和医院，电话 13900001111。医生贵吗？")]
    found = missing(talk, "他们聊了医院。")
    assert {"小雨", "5月14日", "13900001111"} <= set(found)
    summary = "女儿小雨 5 月 14 号去协和医院（13900001111）。未答：医生贵吗"
    assert missing(talk, summary) == []


def test_what_tools_answered_counts_and_an_earlier_summary_does():
    talk = [
        Message("assistant", (ToolUse("t", "web", {}),)),
        Message("user", (ToolResult("t", "Gate B42 opens at 17:05"),)),
    ]
    assert set(missing(talk, "")) == {"B42", "17:05"}
    assert [i.text for i in quality.check(talk, "B42 17:05", "See Ljubljana").missing] == [
        "Ljubljana"
    ]


@given(st.lists(st.text()))
def test_a_summary_that_repeats_everything_lacks_nothing(texts):
    talk = [person(text) for text in texts]
    assert missing(talk, "\n".join(texts)) == []
    assert len(missing(talk, "")) <= quality.MAX_MISSING
