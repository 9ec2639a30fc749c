"""The owner's page of people: who asks, who may talk, whose accounts belong together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from bot.channel import Inbound
from bot.sessions import pairing
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel
from tests.fakes.owner_page import OwnerPage, browser
from tests.fakes.pair import pair
from tests.support import running, until

CLOSED: dict[str, Any] = {"memory": {"dm_policy": "pairing", "allow_from": ["zoe"]}}
CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
HOSTILE = '"><script>alert(1)</script>\u202e'


class Page(OwnerPage):
    """The page of people."""

    async def code_of(self, sender: str, **changes: Any) -> str:
        found = CODE.search(await self.engine.ask("let me in", sender=sender, **changes))
        assert found is not None
        return found[1]

    def last(self, sender: str) -> str:
        return self.engine.sent_to(sender)[-1]

    async def answers(self, sender: str, told: int, text: str) -> str:
        """What somebody is answered once they were told so many things."""
        await self.engine.channel.wait_until(lambda _: len(self.engine.sent_to(sender)) >= told)
        return await self.engine.ask(text, sender=sender)

    async def is_heard(self, sender: str) -> bool:
        """True when somebody is answered or given a code; with nothing to wait for else."""
        before = len(self.engine.sent_to(sender))
        await self.engine.say("hello?", sender=sender)
        await self.engine.ask("still here?", sender="zoe")
        return len(self.engine.sent_to(sender)) > before


@asynccontextmanager
async def people(folder: Path, **sections: Any) -> AsyncIterator[Page]:
    """An engine that lets in Zoe and nobody else, and the owner's browser."""
    async with (
        running(folder, serves=True, **{"channels": CLOSED, **sections}) as engine,
        browser(engine) as client,
    ):
        yield Page(client, engine, "/people")


async def test_who_asks_is_shown_let_in_told_and_answered_at_once(tmp_path: Path):
    async with people(tmp_path) as page:
        assert "Nobody is asking." in await page.shows()
        code = await page.code_of("ada", sender_name="Ada Lovelace")
        shown = await page.shows()
        assert "Ada Lovelace" in shown
        assert f"<code>{code}</code>" in shown
        assert "2026-11-21 12:00" in shown
        with capture_logs() as logs:
            assert await page.does("approve", channel="memory", code=code) == "let_in"
        (changed,) = [each for each in logs if each["event"] == "people.changed"]
        assert (changed["done"], changed["channel"]) == ("let_in", "memory")
        assert code not in str(logs)
        assert "ada" not in str(logs).lower()
        await page.engine.channel.wait_until(lambda _: len(page.engine.sent_to("ada")) == 2)
        assert page.engine.sent_to("ada")[1].startswith("You're in.")
        assert await page.engine.ask("hello") == "You said: hello"
        assert "Nobody is asking." in await page.shows()
        assert "Ada Lovelace" in await page.shows()


async def test_with_this_is_me_the_account_is_the_owners_and_a_link_that_can_be_ended(tmp_path):
    async with people(tmp_path) as page:
        (tmp_path / "workspace/MEMORY.md").write_text("- The boat is red\n")
        code = await page.code_of("ada")
        assert await page.does("approve", channel="memory", code=code, me="yes") == "let_in_me"
        assert "my owner" in (await page.answers("ada", 2, "/whoami"))
        assert "boat is red" in await page.engine.ask("/memory show MEMORY.md")
        shown = await page.shows()
        assert shown.count('<span class="mark">you</span>') == 2  # let in, and linked
        assert "counts as you" in shown
        assert await page.does("block", channel="memory", sender="ada") == "own"
        assert await page.does("part", channel="memory", sender="ada") == "parted"
        await page.engine.channel.wait_until(lambda _: "on its own" in page.last("ada"))
        assert "known to me as `memory:ada`" in await page.engine.ask("/whoami")
        assert "counts as" not in await page.shows()
        assert await page.does("part", channel="memory", sender="ada") == "gone"


async def test_whose_account_the_configuration_says_is_not_made_the_owners(tmp_path):
    session = {"identity_links": {"bob": ["memory:ada"]}}
    origins = {("session", "identity_links", "bob"): "confidant.toml:7"}
    async with people(tmp_path, session=session, origins=origins) as page:
        code = await page.code_of("ada")
        assert "This is me" not in await page.shows()
        assert await page.does("approve", channel="memory", code=code, me="yes") == "configured"
        assert code in await page.shows()
        assert await page.does("approve", channel="memory", code=code) == "let_in"
        shown = await page.shows()
        assert "<dt><bdi>bob</bdi></dt>" in shown
        assert ">memory:ada</bdi>" in shown
        assert "confidant.toml:7" in shown


async def test_whoever_is_blocked_gets_neither_answer_nor_code_until_that_is_undone(tmp_path):
    async with people(tmp_path) as page:
        code = await page.code_of("eve")
        assert await page.does("block", channel="memory", sender="eve") == "blocked"
        assert not await page.is_heard("eve")
        page.engine.clock.advance(hours=2)  # the code they had would have been followed by another
        assert not await page.is_heard("eve")
        assert await page.does("approve", channel="memory", code=code) == "gone"
        assert "Nobody is blocked." not in await page.shows()
        assert await page.does("unblock", channel="memory", sender="eve") == "may_ask"
        assert await page.code_of("eve") != code
        assert await page.does("unblock", channel="memory", sender="eve") == "gone"


async def test_who_was_let_in_can_be_blocked_and_let_in_again_and_it_outlasts_a_restart(tmp_path):
    async with people(tmp_path) as page:
        code = await page.code_of("ada", sender_name="Ada")
        await page.does("approve", channel="memory", code=code)
        await page.answers("ada", 2, "hello")
        assert await page.does("block", channel="memory", sender="ada") == "blocked"
        assert not await page.is_heard("ada")
    async with people(tmp_path) as page:
        assert not await page.is_heard("ada")
        assert "Ada" in await page.shows()
        assert await page.does("again", channel="memory", sender="ada") == "again"
        assert await page.answers("ada", 1, "hello") == "You said: hello"
        assert page.engine.sent_to("ada")[0].startswith("You're in.")
        assert await page.does("again", channel="memory", sender="ada") == "gone"


async def test_a_block_counts_whatever_else_would_let_them_in_and_in_rooms(tmp_path):
    async with people(tmp_path) as page:
        await page.code_of("eve")
        await page.does("block", channel="memory", sender="eve")
    channels = {"memory": {"dm_policy": "open", "allow_from": ["*", "eve"], "group_policy": "open"}}
    async with people(tmp_path, channels=channels) as page:
        assert not await page.is_heard("eve")
        room: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
        await page.engine.say("and here?", sender="eve", **room)
        await page.engine.say("hello", sender="zoe", **room)
        await page.engine.channel.wait_until(lambda _: bool(page.engine.sent_to("den")))
        assert len(page.engine.sent_to("den")) == 1
        assert "and here?" not in page.engine.sent_to("den")[0]


async def test_who_is_let_in_no_longer_must_ask_again(tmp_path):
    async with people(tmp_path) as page:
        await page.does("approve", channel="memory", code=await page.code_of("ada"))
        await page.answers("ada", 2, "hello")
        assert await page.does("revoke", channel="memory", sender="ada") == "ended"
        assert "pairing approve" in await page.engine.ask("hello?")
        assert "Nobody was let in" in await page.shows()
        await page.does("revoke", channel="memory", sender="ada")
        assert await page.does("revoke", channel="memory", sender="ada") == "gone"


async def test_what_the_command_line_did_meanwhile_and_two_clicks_at_once_do_no_harm(tmp_path):
    async with people(tmp_path) as page:
        code = await page.code_of("ada")
        database = await SqliteDatabase.open(tmp_path / "confidant.db")
        try:
            await database.write(
                lambda tx: pairing.approve(tx, "memory", code, page.engine.clock())
            )
        finally:
            await database.close()
        assert await page.does("approve", channel="memory", code=code) == "gone"
        code = await page.code_of("bob")
        clicks = [page.does("approve", channel="memory", code=code) for _ in range(3)]
        assert sorted(await asyncio.gather(*clicks)) == ["gone", "gone", "let_in"]
        await page.answers("bob", 2, "hello")
        assert sum(text.startswith("You're in.") for text in page.engine.sent_to("bob")) == 1


async def test_codes_that_are_over_are_neither_shown_nor_approved(tmp_path):
    async with people(tmp_path) as page:
        code = await page.code_of("ada")
        page.engine.clock.advance(minutes=61)
        assert code not in await page.shows()
        assert await page.does("approve", channel="memory", code=code) == "gone"


@pytest.mark.parametrize("what", ["approve", "block", "again", "unblock", "revoke", "part"])
async def test_what_names_nobody_changes_nothing(tmp_path, what):
    async with people(tmp_path) as page:
        await page.code_of("ada")
        for fields in (
            {},
            {"channel": "memory"},
            {"channel": "\0", "sender": "'; --", "code": "x"},
        ):
            assert await page.does(what, **fields) == "gone"
        kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-99"}
        async with page.client.post(f"/people/{what}", data=b"channel=%ff", headers=kind) as answer:
            assert answer.status == 400
        async with page.client.post(f"/people/{what}", headers={"Origin": "null"}) as answer:
            assert answer.status == 403
        assert "asked 2026-11-21" in await page.shows()


async def test_hostile_names_are_text_and_hundreds_who_ask_come_in_parts(tmp_path):
    async with people(tmp_path) as page:

        def ask(number: int) -> Inbound:
            who, name = f"{HOSTILE}{number}", f"{HOSTILE * 40}\n{number}"
            return Inbound(
                f"chan{number % 4}", "work", who, "direct", who, "1", "hi", 0, sender_name=name
            )

        database = await SqliteDatabase.open(tmp_path / "confidant.db")
        try:
            now = page.engine.clock()
            await database.write(
                lambda tx: [
                    pairing.ask(tx, ask(n), f"CODE{n:04}", now - n * 1000) for n in range(240)
                ]
            )
        finally:
            await database.close()
        first, second = await page.shows(), await page.shows("?asking=2")
        for shown in (first, second):
            assert "<script>" not in shown
            assert "\u202e" not in re.sub(r'<input type="hidden"[^>]*>', "", shown)
            assert shown.count('action="/people/block"') == 50
        assert "(240)" in first
        assert "Part 1 of 5" in first
        assert ("CODE0001" in first, "CODE0051" in first) == (True, False)
        assert ("CODE0001" in second, "CODE0051" in second) == (False, True)
        assert len(first) < 250_000
        for number in ("0", "-1", "99999999999999999999", "x", "٣"):
            assert 'action="/people/block"' in await page.shows(f"?asking={number}")
        found = await page.shows("?q=code0207")
        assert found.count('action="/people/block"') == 1
        assert "&#34;&gt;&lt;script&gt;" in await page.shows(f"?q={quote(HOSTILE)}")
        seat = {"channel": "chan3", "sender": f"{HOSTILE}207"}
        assert await page.does("block", **seat) == "blocked"
        assert "CODE0207" not in await page.shows("?q=code0207")
        assert await page.does("unblock", **seat) == "may_ask"


async def test_the_page_speaks_chinese_and_says_only_what_it_knows(tmp_path):
    async with people(tmp_path) as page:
        await page.code_of("ada")
        shown = await page.shows("?told=let_in", "zh-CN")
        assert "请求加入" in shown
        assert "对方现在可以和机器人说话了" in shown
        assert 'class="told"' not in await page.shows("?told=<b>you+won</b>")


@pytest.mark.slow
async def test_what_is_decided_at_one_node_counts_at_the_other(tmp_path, postgres_url):
    model = ScriptedModel()
    async with (
        pair(postgres_url, tmp_path, model, channels=CLOSED, serves=True) as nodes,
        browser(nodes.one) as client,
    ):
        page = Page(client, nodes.one, "/people")
        await nodes.other.say("let me in", sender="ada")
        found = CODE.search((await nodes.answered(1))[0])
        assert found is not None
        assert await page.does("approve", channel="memory", code=found[1]) == "let_in"
        await nodes.answered(2)
        await nodes.other.say("hello", sender="ada")
        assert (await nodes.answered(3))[2] == "You said: hello"
        assert await page.does("block", channel="memory", sender="ada") == "blocked"
        await until(lambda: bool(nodes.other.app.resolver.now.books.blocked))
        await nodes.other.say("hello?", sender="ada")
        await nodes.other.say("still here?", sender="zoe")
        assert (await nodes.answered(4))[3] == "You said: still here?"
        assert await page.does("again", channel="memory", sender="ada") == "again"
        await until(lambda: not nodes.other.app.resolver.now.books.blocked)
        await nodes.other.say("and now?", sender="ada")
        await until(lambda: "You said: and now?" in nodes.sent)
