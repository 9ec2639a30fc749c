"""Questions whether a tool may be called, on both engines: one answer, and one beginning."""

from __future__ import annotations

import asyncio

import pytest

from bot.channel import Address, Button, Inbound
from bot.delivery.outbox import Letter
from bot.gateway.approvals import put
from bot.messages import ToolUse
from bot.sessions import approvals, store
from bot.sessions.approvals import KEPT_MS, VALID_MS, Question
from bot.storage import Database, Transaction
from bot.unit_of_work import UnitOfWork
from tests.support import NOON
from tests.unit.test_reminders import PLACE

ADA, EVE = ("telegram", "default", "1"), ("telegram", "default", "2")


async def ask(
    database: Database,
    asker: approvals.Asker = ADA,
    at: int = NOON,
    session: str = "s",
) -> Question:
    return await database.write(
        lambda tx: approvals.ask(tx, asker, at, session_id=session, entry=f"{session}.2", call="t")
    )


async def answer(database: Database, question: Question, *, is_allowed: bool, at: int = NOON):
    await database.write(lambda tx: approvals.answer(tx, question, at, is_allowed=is_allowed))


async def begin(database: Database, question: Question, at: int = NOON) -> str | None:
    found = await database.write(lambda tx: approvals.begin(tx, question.id, at))
    return found[1] if found is not None else None


async def open_ids(database: Database, asker: approvals.Asker = ADA, at: int = NOON) -> list[str]:
    found = await database.read(lambda tx: approvals.open_in(tx, "s", asker, at))
    return [question.id for question in found]


async def test_what_was_allowed_is_begun_once(each_database: Database):
    question = await ask(each_database)
    assert await each_database.read(lambda tx: approvals.of_id(tx, question.id)) == question
    assert question == Question(question.id, "s", "s.2", "t", ADA, "open", NOON)
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question) == "allowed"
    assert await begin(each_database, question) == "begun"
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question) == "begun"


async def test_of_many_who_begin_it_at_once_one_does(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    found = await asyncio.gather(*(begin(each_database, question) for _ in range(8)))
    assert sorted(found, key=str) == ["allowed", *["begun"] * 7]


async def test_the_first_answer_counts(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=False)
    await answer(each_database, question, is_allowed=True)
    assert [await begin(each_database, question) for _ in range(2)] == ["denied", "denied"]


async def test_nothing_is_begun_that_was_not_answered(each_database: Database):
    question = await ask(each_database)
    assert await begin(each_database, question) == "begun"
    found = await each_database.write(lambda tx: approvals.begin(tx, "nothing", NOON))
    assert found is None


@pytest.mark.parametrize(("later", "verdict"), [(VALID_MS, "allowed"), (VALID_MS + 1, "late")])
async def test_what_was_allowed_long_ago_is_not_begun(
    each_database: Database, later: int, verdict: str
):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question, NOON + later) == verdict
    assert await begin(each_database, question) == "begun"


async def test_only_what_somebody_may_still_answer_is_open_to_them(each_database: Database):
    first, second = await ask(each_database), await ask(each_database, at=NOON + 1)
    await ask(each_database, EVE)
    await ask(each_database, session="other")
    assert await open_ids(each_database) == [first.id, second.id]
    await answer(each_database, first, is_allowed=True)
    assert await open_ids(each_database) == [second.id]
    assert await open_ids(each_database, at=NOON + 1 + VALID_MS) == [second.id]
    assert await open_ids(each_database, at=NOON + 2 + VALID_MS) == []
    assert second.is_open(NOON + 1 + VALID_MS)
    assert not second.is_open(NOON + 2 + VALID_MS)


async def test_old_questions_go_but_not_what_was_allowed_and_still_waits(each_database: Database):
    old, allowed = await ask(each_database), await ask(each_database)
    await answer(each_database, allowed, is_allowed=True)
    await ask(each_database, at=NOON + KEPT_MS + 1)
    found = [
        await each_database.read(lambda tx, id_=each.id: approvals.of_id(tx, id_))
        for each in (old, allowed)
    ]
    assert [each is not None for each in found] == [False, True]


async def test_a_restored_database_has_no_questions(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    await each_database.write(approvals.drop_all)
    assert await begin(each_database, question) is None


@pytest.mark.parametrize("chat_type", ["direct", "group"])
async def test_a_question_says_what_is_to_be_done_to_whom_it_is_put(
    each_database: Database, chat_type: str
):
    inbound = Inbound("telegram", "default", "9", chat_type, "1", "m7", "bake", NOON, thread="t1")

    def work(tx: Transaction) -> tuple[Letter, Question, list[tuple[str, str]]]:
        unit = UnitOfWork(tx, NOON)
        session, _ = unit.current(PLACE)
        use = ToolUse("call-1", "oven", {"degrees": 180})
        put(unit, inbound, use, session_id=session.id, entry="s.2", language="en")
        (letter,) = unit.letters
        (question,) = approvals.open_in(tx, session.id, ADA, NOON)
        noted = [(entry.kind, entry.text) for _, entry in store.recent(tx, PLACE.key, 9)]
        return letter, question, noted

    letter, question, noted = await each_database.write(work)
    assert (question.entry, question.call, question.asker) == ("s.2", "call-1", ADA)
    assert letter.text == (
        'May I use `oven` with this?\n\n```json\n{\n  "degrees": 180\n}\n```\n\n'
        f"Your answer counts for this one call, for 60 minutes: `/allow {question.id}` or "
        f"`/deny {question.id}`."
    )
    assert letter.extra.buttons == (
        Button("Allow once", f"/allow {question.id}"),
        Button("No", f"/deny {question.id}"),
    )
    assert (letter.address, letter.kind, letter.language) == (
        Address("telegram", "default", "9", "t1"),
        "notice",
        "en",
    )
    in_room = chat_type == "group"
    assert (letter.asker, letter.reply_to) == (("1", "m7") if in_room else ("", ""))
    assert noted == [("notice", letter.text)]
