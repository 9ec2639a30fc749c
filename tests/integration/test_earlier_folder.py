"""A folder from before a conversation was resolved once: everything in it counts as it did.

`tests/data/links-and-rooms.tar.gz` is a storage folder as that version left it: eve's account is
joined to ada's, a room is answered always and was then given another id, a thread of it was talked
in, and two messages of eve's wait.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from bot.identity import MessageOrigin
from bot.sessions import store
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel
from tests.support import running

ARCHIVE = Path(__file__).parents[1] / "data" / "links-and-rooms.tar.gz"
SECTIONS: dict[str, Any] = {
    "channels": {"memory": {"group_policy": "open"}},
    "session": {"owner": ["memory:boss"]},
}
ROOM = {"chat_type": "group", "message_id": "later", "chat": "newden"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


async def test_what_waits_is_answered_by_the_links_that_were_made(old: Path):
    model = ScriptedModel()
    async with running(old, model=model, **SECTIONS) as engine:
        await engine.channel.wait_until(lambda _: len(engine.sent_to("eve")) == 2)
        assert engine.sent_to("eve") == [
            "You said: what is the plan?",
            "You said: and what else?",
        ]
        known = await engine.ask("/whoami", sender="eve", message_id="later")
        assert "memory:ada" in known
    shown = "".join(block.text for m in model.requests[0].messages for block in m.blocks)
    assert "zqadaz" in shown  # what ada said is eve's, too


async def test_a_room_that_moved_goes_on_as_it_was_chosen(old: Path):
    async with running(old, **SECTIONS) as engine:
        await engine.say("still there?", sender="boss", **ROOM)
        await engine.channel.wait_until(lambda _: engine.sent_to("newden"))
        assert engine.sent_to("newden") == ["You said: still there?"]
        seen = [[m.text for m in request.messages] for request in engine.model.requests]
        assert ["hello all", "You said: hello all", "still there?"] in seen


async def test_without_the_link_what_waits_is_its_own_accounts(old: Path):
    model = ScriptedModel()
    named = {**SECTIONS, "session": {"identity_links": {"eve": ["memory:eve"]}}}
    async with running(old, model=model, **named) as engine:
        await engine.channel.wait_until(lambda _: len(engine.sent_to("eve")) == 2)
    for request in model.requests:
        assert "zqadaz" not in repr(request.messages)


async def test_sessions_have_the_facts_they_were_begun_with(old: Path):
    database = await SqliteDatabase.open(old / "confidant.db")
    found = {session.chat: session.origin for session in await database.read(store.all_sessions)}
    await database.close()
    locale = "en"
    assert found["thread"] == MessageOrigin(
        "memory", "default", "thread", "thread", "boss", locale=locale
    )
    assert found["ada"] == MessageOrigin("memory", "default", "ada", "direct", "ada", locale=locale)
