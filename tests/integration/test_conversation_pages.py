"""The pages in which somebody looks through their own conversations, and nobody else's."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import pytest

from bot.channel import Address, Inbound
from bot.identity.routing import OWNER
from bot.identity.view import MemoryView
from bot.recovery import TRANSCRIPTS
from bot.sessions import browsing, entries, forgetting, pairing, store
from bot.storage import Transaction
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.owner_page import OwnerPage, browser
from tests.fakes.page_people import browser as page_browser
from tests.fakes.page_people import serving
from tests.fakes.pair import pair
from tests.support import NOON, Engine, FakeClock, beside, running, until, write_file

# The owner of the page talks from the memory channel too, as "ada".
SESSION = {"owner": ["memory:ada"], "reset": {"mode": "none"}}


class Browser:
    """The owner's browser, without script."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self._url = url

    async def get(self, path: str, status: int = 200) -> str:
        async with self._client.get(f"{self._url}{path}") as answer:
            assert answer.status == status, path
            return await answer.text()

    async def headers(self, path: str) -> Any:
        async with self._client.get(f"{self._url}{path}") as answer:
            return answer.headers

    async def post(self, path: str, status: int = 303, *, origin: str = "", **form: str) -> None:
        headers = {"Origin": origin or self._url}
        async with self._client.post(
            f"{self._url}{path}", data=form, headers=headers, allow_redirects=False
        ) as answer:
            assert answer.status == status, path


@asynccontextmanager
async def browsing_with(
    folder: Path, *, language: str = "en", **settings: Any
) -> AsyncIterator[tuple[Engine, Browser]]:
    settings.setdefault("session", SESSION)
    async with (
        running(folder, serves=True, **settings) as engine,
        aiohttp.ClientSession(headers={"Accept-Language": language}) as client,
    ):
        assert engine.app.address is not None
        yield engine, Browser(client, engine.app.address.url.rstrip("/"))


async def lengthen(folder: Path, id_: str, count: int, words: str = "number") -> None:
    """Say more in a conversation: "number 1", "number 2" …"""
    news = [entries.NewEntry("message", "user", f"{words} {n}") for n in range(1, count + 1)]
    async with beside(folder) as database:
        await database.write(lambda tx: store.append(tx, id_, news, NOON))


async def copy(folder: Path, id_: str, count: int) -> None:
    """Have more conversations like one, each begun and left at the same moment."""

    def work(tx: Transaction) -> None:
        session = store.get(tx, id_)
        assert session is not None
        for number in range(count):
            another = replace(session, id=f"20260101-000000-{number:010x}", key=f"copy {number}")
            store.insert(tx, another)

    async with beside(folder) as database:
        await database.write(work)


def turn(page: str, rel: str) -> str | None:
    """Where a page leads on to, without the place in it."""
    found = re.search(rf'rel="{rel}" href="([^"#]+)', page)
    return found[1] if found else None


def ids_in(page: str) -> list[str]:
    """The conversations a list leads to, in order."""
    return re.findall(r'href="/conversations/([0-9a-z-]+)#end"', page)


def said_in(page: str) -> list[str]:
    """What a conversation's page shows as the person's own words, in order."""
    found = re.findall(r'<div class="text plain">(.*?)</div>', page, re.DOTALL)
    return [html.unescape(words) for words in found]


async def test_the_list_has_ones_own_conversations_by_day_and_nobody_elses(tmp_path):
    clock = FakeClock()
    async with browsing_with(tmp_path, clock=clock) as (engine, browser):
        await engine.ask("the older talk")
        clock.advance(days=1)
        await engine.ask_each("/new", "about the heron")
        await engine.ask("of bob alone", sender="bob")
        page = await browser.get("/conversations")
    assert page.index("<h2>Today</h2>") < page.index("about the heron")
    assert page.index("about the heron") < page.index("<h2>Yesterday</h2>")
    assert page.index("<h2>Yesterday</h2>") < page.index("the older talk")
    assert "of bob alone" not in page
    assert len(ids_in(page)) == 2
    assert page.count("· Memory ·") == 2


async def test_an_old_conversation_of_the_page_is_continued_by_a_button(tmp_path):
    async with (
        serving(tmp_path, token=None, session=SESSION) as engine,
        page_browser(engine) as owner,
        owner.chat() as chat,
    ):
        await engine.ask_each("from elsewhere", "/new")
        for number, words in enumerate(("about the heron", "/new", "about the boat")):
            await chat.say(type="send", id=f"m{number}", text=words)
            await chat.until("message", role="bot")
        once: dict[str, tuple[str, str]] = {}
        for id_ in ids_in((await owner.get("/conversations"))[1]):
            _, page = await owner.get(f"/conversations/{id_}")
            found = re.search(r'name="once" value="(\w+)"', page)
            once[said_in(page)[0]] = id_, found[1] if found else ""
        # The one that goes on in the page, and one of another place, have no button.
        assert [words for words, (_, found) in once.items() if found] == ["about the heron"]
        heron, key = once["about the heron"]
        assert (await owner.post(f"/conversations/{heron}/continue", once="x"))[0] == 400
        elsewhere = once["from elsewhere"][0]
        assert (await owner.post(f"/conversations/{elsewhere}/continue", once=key))[0] == 400
        for _ in range(2):  # pressed twice, it is one message
            assert await owner.post(f"/conversations/{heron}/continue", once=key) == (303, "/")
        told = await chat.until("message", role="bot")
        assert "Continuing “about the heron”" in told["text"]
        await chat.say(type="send", id="m9", text="and then?")
        await chat.until("message", role="bot")
        assert [m.text for m in engine.model.requests[-1].messages] == [
            "about the heron",
            "You said: about the heron",
            "and then?",
        ]


async def test_the_current_conversation_is_a_new_one_until_something_is_said(tmp_path):
    async with (
        serving(tmp_path, token=None) as engine,
        page_browser(engine) as owner,
        owner.chat() as chat,
    ):
        titles = ["about the heron"]
        for number, words in enumerate(("about the heron", "/new")):
            await chat.say(type="send", id=f"m{number}", text=words)
            await chat.until("message", role="bot")
            listed = orjson.loads((await owner.get("/api/conversations"))[1])["items"]
            assert [each["title"] for each in listed if each["current"]] == titles[-1:]
            titles.append("New conversation")


async def test_the_chat_page_lists_searches_and_reads_ones_own_conversations_alone(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("where do herons nest?", "/new", "which boat is faster?")
        await engine.ask("of bob alone, about herons", sender="bob")
        listed = orjson.loads(await browser.get("/api/conversations"))
        found = orjson.loads(await browser.get("/api/conversations?q=herons"))
        assert {each["title"] for each in listed["items"]} == {
            "where do herons nest?",
            "which boat is faster?",
        }
        assert [each["title"] for each in found["items"]] == ["where do herons nest?"]
        heron = found["items"][0]["id"]
        read = orjson.loads(await browser.get(f"/api/conversations/{heron}"))
        said = [(each["role"], each["text"]) for each in read["items"]]
        assert said == [
            ("user", "where do herons nest?"),
            ("bot", "You said: where do herons nest?"),
        ]
        assert read["items"][1]["html"] == "<p>You said: where do herons nest?</p>\n"
        assert not read["is_earlier"]  # it took place in another channel
        async with beside(tmp_path) as database:
            bobs = await database.read(lambda tx: browsing.listed(tx, ["memory:bob"], 9))
        assert len(bobs) == 1
        await browser.get(f"/api/conversations/{bobs[0].id}", 404)
        for wrong in ("/api/conversations?after=x", f"/api/conversations/{heron}?before=x"):
            await browser.get(wrong, 400)


async def test_what_was_forgotten_is_in_no_list_and_no_lines_of_the_chat_page(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("my locker code is 4711-zebra", "/memory forget zebra")
        await engine.ask("/memory forget yes")
        for path in ("/api/conversations", "/api/conversations?q=zebra"):
            assert "zebra" not in await browser.get(path)
        (only,) = orjson.loads(await browser.get("/api/conversations"))["items"]
        assert "zebra" not in await browser.get(f"/api/conversations/{only['id']}")


async def test_the_lines_of_a_long_conversation_come_a_part_at_a_time(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("number 0")
        (only,) = orjson.loads(await browser.get("/api/conversations"))["items"]
        await lengthen(tmp_path, only["id"], 150)
        said, before = list[str](), ""
        while True:
            path = f"/api/conversations/{only['id']}" + (f"?before={before}" if before else "")
            part = orjson.loads(await browser.get(path))
            said = [each["text"] for each in part["items"] if each["role"] == "user"] + said
            if not (before := part["before"]):
                break
    assert said == [f"number {number}" for number in range(151)]


async def test_an_empty_list_says_so_in_both_languages(tmp_path):
    async with browsing_with(tmp_path) as (_, browser):
        assert "No conversations yet." in await browser.get("/conversations")
    async with browsing_with(tmp_path, language="zh") as (_, browser):
        assert "<h1>对话</h1>" in await browser.get("/conversations")


async def test_what_is_not_ones_own_is_not_there(tmp_path):
    channels = {"memory": {"group_policy": "open"}}
    async with browsing_with(tmp_path, channels=channels) as (engine, browser):
        await engine.ask("of bob alone", sender="bob")
        room: dict[str, Any] = {"chat": "garden", "chat_type": "group", "mentions_bot": True}
        await engine.say("in the room", **room)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("garden")))
        rows = query(tmp_path, "SELECT id, chat_type FROM sessions ORDER BY chat_type")
        assert [kind for _, kind in rows] == ["direct", "group"]
        assert ids_in(await browser.get("/conversations")) == []
        for id_ in (*(row[0] for row in rows), "20260101-000000-aa", "%2e%2e", "x" * 500):
            for path in (id_, f"{id_}.md", f"{id_}.jsonl"):
                page = await browser.get(f"/conversations/{path}", 404)
                assert "alone" not in page
            await browser.post(f"/conversations/{id_}/title", 404, title="mine now")
            await browser.post(f"/conversations/{id_}/shelf", 404, shelf="archived")


async def _first_id(browser: Browser) -> str:
    return ids_in(await browser.get("/conversations"))[0]


@asynccontextmanager
async def talked(folder: Path, text: str) -> AsyncIterator[tuple[Browser, str]]:
    """The browser of somebody who said something, and the id of that conversation."""
    async with browsing_with(folder) as (engine, browser):
        await engine.ask(text)
        yield browser, await _first_id(browser)


async def test_a_conversation_is_shown_as_it_was_said(tmp_path):
    model = ScriptedModel(script=lambda _: "**All** right, <i>you</i>.\n\n# Heading")
    async with browsing_with(tmp_path, model=model) as (engine, browser):
        await engine.ask("<script>alert(1)</script> & the heron")
        page = await browser.get(f"/conversations/{await _first_id(browser)}")
    assert said_in(page) == ["<script>alert(1)</script> & the heron"]
    assert "<script>" not in page
    assert "<strong>All</strong> right, &lt;i&gt;" in page
    assert "<h1><bdi>&lt;script&gt;alert(1)&lt;/script&gt; &amp; the heron</bdi></h1>" in page
    assert "Memory · started Today · 2 messages" in page


async def test_a_long_list_is_paged_without_gaps_or_copies(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("hello")
        await copy(tmp_path, await _first_id(browser), 95)
        seen: list[str] = []
        path = "/conversations"
        for _ in range(3):
            page = await browser.get(path)
            seen += ids_in(page)
            older = re.search(r'href="(/conversations\?after=[^"]+)"', page)
            path = older[1] if older else ""
        assert path == ""
        assert len(seen) == len(set(seen)) == 96
        assert seen == sorted(seen, reverse=True)
        last = f"1.{'a' * 40}"
        assert "No older ones." in await browser.get(f"/conversations?after={last}")


async def test_pinned_ones_stand_first_and_archived_ones_aside_in_parts_without_gaps(tmp_path):
    async with talked(tmp_path, "the only one") as (browser, id_):
        await copy(tmp_path, id_, 2 * browsing.MAX_PINNED)
        listed, path = list[str](), "/conversations"
        while path:
            page = html.unescape(await browser.get(path))
            listed, path = listed + ids_in(page), turn(page, "next") or ""
        pinned, archived = listed[: browsing.MAX_PINNED + 5], listed[browsing.MAX_PINNED + 5 :]
        for shelf, ids in (("pinned", pinned), ("archived", archived)):
            for each in ids:
                await browser.post(f"/conversations/{each}/shelf", shelf=shelf)
        first = orjson.loads(await browser.get("/api/conversations"))
        assert len(first["pinned"]) == browsing.MAX_PINNED
        assert {each["shelf"] for each in first["pinned"]} == {"pinned"}
        # More than can stand first are by day; none is lost, and none there twice.
        ids = [each["id"] for each in (*first["pinned"], *first["items"])]
        assert sorted(ids) == sorted(pinned)
        page = await browser.get("/conversations")
        assert page.index("<h2>Pinned</h2>") < page.index(pinned[0])
        found, path = list[str](), "/conversations?archived"
        while path:
            page = html.unescape(await browser.get(path))
            found, path = found + ids_in(page), turn(page, "next") or ""
        assert found == archived
        await browser.post(f"/conversations/{archived[0]}/shelf", shelf="")
        assert archived[0] in await browser.get("/conversations")
        await browser.post(f"/conversations/{id_}/shelf", 400, shelf="deleted")
        await browser.post(f"/conversations/{id_}/shelf", 400)


async def test_an_archived_conversation_is_still_searched_and_a_message_brings_it_back(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("where do herons nest?")
        id_ = await _first_id(browser)
        await browser.post(f"/conversations/{id_}/shelf", shelf="archived")
        assert ids_in(await browser.get("/conversations")) == []
        assert "Nothing is archived." not in await browser.get("/conversations?archived")
        assert "herons" in await browser.get("/conversations?q=herons")
        await engine.ask("and storks?")  # in the channel it took place in, it goes on
        assert ids_in(await browser.get("/conversations")) == [id_]
        assert "Nothing is archived." in await browser.get("/conversations?archived")


async def test_a_cursor_that_is_rubbish_is_refused(tmp_path):
    rubbish = ("x", "1.", ".a", "1.A", "1.a%0a", "-1.a", "9" * 30 + ".a", "1.%27--", "%00")
    async with talked(tmp_path, "hello") as (browser, id_):
        for after in ("1", *rubbish):
            await browser.get(f"/conversations?after={after}", 400)
        for number in ("0", *rubbish):
            for name in ("before", "after", "at"):
                await browser.get(f"/conversations/{id_}?{name}={number}", 400)
        for number in ("99", *rubbish):
            await browser.get(f"/conversations?q=hello&page={number}", 400)


async def test_a_line_that_is_not_there_leads_to_the_newest(tmp_path):
    async with talked(tmp_path, "hello") as (browser, id_):
        for name in ("before", "after", "at"):
            page = await browser.get(f"/conversations/{id_}?{name}=4000000000")
            assert said_in(page) == ["hello"]
        await browser.get(f"/conversations/{id_}?before=1&after=1", 400)


async def test_one_reads_back_to_the_beginning_and_forth_again(tmp_path):
    async with talked(tmp_path, "number 0") as (browser, id_):
        await lengthen(tmp_path, id_, 200)
        seen: list[str] = []
        path: str | None = f"/conversations/{id_}"
        while path:
            page = await browser.get(path)
            seen = said_in(page) + seen
            first, path = path, turn(page, "prev")
        assert seen == [f"number {n}" for n in range(201)]
        forth = said_in(await browser.get(first))
        path = turn(await browser.get(first), "next")
        while path:
            page = await browser.get(path)
            forth += said_in(page)
            path = turn(page, "next")
        assert forth == seen
        page = await browser.get(f"/conversations/{id_}?at=103")
        assert 'id="l103" class="said mine found"' in page
        assert said_in(page)[0] == "number 71"
        assert turn(page, "prev")
        assert turn(page, "next")


async def test_what_tools_did_is_passed_over_however_long_it_took(tmp_path):
    async with talked(tmp_path, "number 0") as (browser, id_):
        silent = [entries.NewEntry("message", "assistant", "")] * 450
        async with beside(tmp_path) as database:
            await database.write(lambda tx: store.append(tx, id_, silent, NOON))
        assert said_in(await browser.get(f"/conversations/{id_}")) == ["number 0"]


async def test_a_long_line_and_a_long_page_are_bounded(tmp_path):
    # A reply of one piece: what is waited for is the whole of it.
    model = ScriptedModel(script=lambda _: "All right.")
    async with browsing_with(tmp_path, model=model) as (engine, browser):
        await engine.ask_each("x" * 9_000, "y" * 9_000)
        id_ = await _first_id(browser)
        page = await browser.get(f"/conversations/{id_}")
        assert [len(words) for words in said_in(page)] == [browsing.LONGEST] * 2
        assert "3000 more characters" in page
        assert len(re.search(r"<h1><bdi>(.*?)</bdi>", page)[1]) == browsing.MAX_TITLE  # type: ignore[index]
        await lengthen(tmp_path, id_, 30, "z" * 7_000)
        assert len(said_in(await browser.get(f"/conversations/{id_}"))) <= 11
        whole = await browser.get(f"/conversations/{id_}.md")
        assert "x" * 9_000 in whole


# --- searching ------------------------------------------------------------------------------------


async def test_a_search_finds_what_was_said_and_answered_and_leads_there(tmp_path):
    model = ScriptedModel(script=lambda _: "A heron is <b>grey</b>.")
    async with browsing_with(tmp_path, model=model) as (engine, browser):
        await engine.ask("what is a Heron <i>like</i>?")
        await engine.ask("the heron of bob", sender="bob")
        page = await browser.get("/conversations?q=heron")
        assert "what is a <mark>Heron</mark> &lt;i&gt;like" in page
        assert "A <mark>heron</mark> is &lt;b&gt;grey" in page
        assert "of bob" not in page
        link = re.search(r'href="(/conversations/[^"]+\?at=(\d+))#l(\d+)"', page)
        assert link is not None
        assert link[2] == link[3]
        assert f'id="l{link[2]}"' in await browser.get(link[1])
        assert "Nothing matches these words" in await browser.get("/conversations?q=unicorn")
        hostile = await browser.get("/conversations?q=%22%3E%3Cscript%3E")
        assert "<script>" not in hostile
        assert await browser.get("/conversations?q=" + "a+" * 1_000)


async def test_chinese_is_found_and_marked(tmp_path):
    async with browsing_with(tmp_path, language="zh") as (engine, browser):
        await engine.ask("我喜欢喝乌龙茶")
        page = await browser.get("/conversations?q=乌龙茶")
    assert "我喜欢喝" in page
    assert "<mark>乌龙</mark>" in page


async def test_results_are_paged(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("number 0")
        await lengthen(tmp_path, await _first_id(browser), 40)
        pages = [await browser.get(f"/conversations?q=number&page={n}") for n in (1, 2, 3)]
    assert [page.count('<p class="words">') for page in pages] == [20, 20, 2]
    found = [set(re.findall(r"\?at=(\d+)#", page)) for page in pages]
    assert len(set.union(*found)) == 42


# --- forgetting -----------------------------------------------------------------------------------


async def test_what_was_forgotten_is_nowhere(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("my sister is called Leonor", "something else")
        id_ = await _first_id(browser)
        assert "Leonor" in await browser.get("/conversations")
        owner = MemoryView("main", (), private=True, people=(OWNER,))
        async with beside(tmp_path) as database:
            await forgetting.forget(database, owner, "Leonor", NOON)
        listed = await browser.get("/conversations")
        assert "something else" in listed  # it has another title now
        shown = await browser.get(f"/conversations/{id_}")
        assert "Forgotten, as you asked." in shown
        found = await browser.get("/conversations?q=sister")
        exported = await browser.get(f"/conversations/{id_}.jsonl")
        markdown = await browser.get(f"/conversations/{id_}.md")
    for page in (listed, shown, found.split("<h2>")[1], exported, markdown):
        assert "Leonor" not in page
        assert "sister" not in page
    assert [orjson.loads(line)["id"] for line in exported.splitlines()[1:]] == [
        f"{id_}.{n}" for n in range(1, 5)
    ]


async def test_what_was_asked_about_what_is_forgotten_is_nowhere_either(tmp_path):
    write_file(tmp_path / "workspace" / "memory" / "leonor.md", "- Leonor is my sister\n")
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("hello")
        id_ = await _first_id(browser)
        await engine.ask_each("/memory search Leonor", "/memory show memory/leonor.md")
        await browser.post(f"/conversations/{id_}/title", title="About Leonor")
        assert "Leonor" in await engine.ask("/memory forget LEONOR")
        told = await engine.ask("/memory forget yes")
        assert "memory/leonor.md: 1 entry removed" in told  # a file that is called so stays
        assert "1 conversation name removed" in told
        await engine.ask("/whosees me")
        pages = [
            await browser.get(f"/conversations{rest}")
            for rest in ("", f"/{id_}", f"/{id_}.jsonl", f"/{id_}.md")
        ]
        place = Address("memory", "default", "ada")
        pages += [item.text for item in await engine.channel.engine.history(place, 100)]
        assert "in none of your files" in await engine.ask("/whosees Leonor")
    (transcript,) = (tmp_path / TRANSCRIPTS).rglob("*.jsonl")
    lines = [entries.parse(line) for line in transcript.read_bytes().splitlines()[1:]]
    pages += [line.text for line in lines if "forget" in line.text.casefold()]
    assert len(pages) > 12
    for page in pages:
        assert "leonor" not in page.casefold()
    assert "/memory forget …" in pages[1]
    assert "Forgotten, as you asked." in pages[1]


async def test_the_button_takes_the_commands_with_it(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("/memory search Leonor", "/memory forget Leonor and others")
        id_ = await _first_id(browser)
        assert "Leonor" in await browser.get(f"/conversations/{id_}")
        await browser.post("/memory/forgotten", words="leonor")
        for rest in (f"/{id_}", f"/{id_}.jsonl", f"/{id_}.md"):
            page = await browser.get(f"/conversations{rest}")
            assert "Leonor" not in page
        place = Address("memory", "default", "ada")
        history = await engine.channel.engine.history(place, 100)
        assert not [item for item in history if "Leonor" in item.text]
        kept = "SELECT body FROM inbox UNION ALL SELECT text || extra FROM outbox"
        assert not [text for (text,) in query(tmp_path, kept) if "Leonor" in text]


# --- naming and taking along ----------------------------------------------------------------------


async def test_a_conversation_is_named(tmp_path):
    async with talked(tmp_path, "hello") as (browser, id_):
        for given, title in (
            ("Garden plans", "Garden plans"),
            ("  a\n\tb \0 c  ", "a b c"),
            ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
            ("花园" * 200, "花园" * 60),
            ("\u202edcba", "\u202edcba"),
            ("   ", "hello"),
        ):
            await browser.post(f"/conversations/{id_}/title", title=given)
            for path in ("/conversations", f"/conversations/{id_}"):
                assert f"<bdi>{title}</bdi>" in await browser.get(path)
        await browser.post(f"/conversations/{id_}/title", 400, other="x")


async def test_a_name_outlives_the_database(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("hello")
        await browser.post(f"/conversations/{await _first_id(browser)}/title", title="Garden")
    for file in tmp_path.glob("confidant.db*"):
        file.unlink()
    async with browsing_with(tmp_path) as (_, browser):
        assert "<bdi>Garden</bdi>" in await browser.get("/conversations")


async def test_a_conversation_is_taken_along_whole(tmp_path):
    async with talked(tmp_path, "number 0") as (browser, id_):
        await lengthen(tmp_path, id_, 250)
        await browser.post(f"/conversations/{id_}/title", title="All my numbers")
        exported = await browser.get(f"/conversations/{id_}.jsonl")
        markdown = await browser.get(f"/conversations/{id_}.md")
        async with beside(tmp_path) as database:
            transcript = await database.read(lambda tx: store.lines(tx, id_))
        headers = await browser.headers(f"/conversations/{id_}.md")
    assert exported.splitlines() == transcript
    assert markdown.startswith("# All my numbers\n\n## 2026-11-21\n\n**You**, 12:00\n\nnumber 0\n")
    assert re.findall(r"^number (\d+)$", markdown, re.MULTILINE) == [str(n) for n in range(251)]
    assert headers["Content-Disposition"] == f'attachment; filename="{id_}.md"'
    assert headers["Cache-Control"] == "no-store"


async def test_the_bot_is_called_there_as_everywhere(tmp_path):
    named = {"name": "Heron <b>", "timezone": "UTC"}
    async with browsing_with(tmp_path, agent=named) as (engine, browser):
        await engine.ask("hello")
        (session,) = ids_in(await browser.get("/conversations"))
        assert "Heron &lt;b&gt; <time" in await browser.get(f"/conversations/{session}")
        assert "**Heron <b>**" in await browser.get(f"/conversations/{session}.md")


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


@pytest.fixture
async def page(tmp_path):
    async with people(tmp_path) as found:
        yield found


async def test_who_asks_is_shown_let_in_told_and_answered_at_once(page, logs):
    assert "No requests." in await page.shows()
    code = await page.code_of("ada", sender_name="Ada Lovelace")
    shown = await page.shows()
    assert "Ada Lovelace" in shown
    assert f"<code>{code}</code>" in shown
    assert "today at 12:00" in shown
    assert await page.does("approve", channel="memory", code=code) == "let_in"
    (changed,) = [each for each in logs if each["event"] == "people.changed"]
    assert (changed["done"], changed["channel"]) == ("let_in", "memory")
    assert code not in str(logs)
    assert "ada" not in str(logs).lower()
    await page.engine.channel.wait_until(lambda _: len(page.engine.sent_to("ada")) == 2)
    assert page.engine.sent_to("ada")[1].startswith("You're in.")
    assert await page.engine.ask("hello") == "You said: hello"
    assert "No requests." in await page.shows()
    assert "Ada Lovelace" in await page.shows()


async def test_with_this_is_me_the_account_is_the_owners_and_a_link_that_can_be_ended(
    page, tmp_path
):
    (tmp_path / "workspace/MEMORY.md").write_text("- The boat is red\n")
    code = await page.code_of("ada")
    assert await page.does("approve", channel="memory", code=code, me="yes") == "let_in_me"
    assert "the owner" in (await page.answers("ada", 2, "/whoami"))
    assert "boat is red" in await page.engine.ask("/memory show MEMORY.md")
    shown = await page.shows()
    assert shown.count('<span class="mark">you</span>') == 2  # let in, and linked
    assert "counts as you" in shown
    assert await page.does("block", channel="memory", sender="ada") == "own"
    assert await page.does("part", channel="memory", sender="ada") == "parted"
    await page.engine.channel.wait_until(lambda _: "separate again" in page.last("ada"))
    assert "I know you as `memory:ada`" in await page.engine.ask("/whoami")
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


async def test_whoever_is_blocked_gets_neither_answer_nor_code_until_that_is_undone(page):
    code = await page.code_of("eve")
    assert await page.does("block", channel="memory", sender="eve") == "blocked"
    assert not await page.is_heard("eve")
    page.engine.clock.advance(hours=2)  # the code they had would have been followed by another
    assert not await page.is_heard("eve")
    assert await page.does("approve", channel="memory", code=code) == "gone"
    assert "No one is blocked." not in await page.shows()
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


async def test_who_is_let_in_no_longer_must_ask_again(page):
    await page.does("approve", channel="memory", code=await page.code_of("ada"))
    await page.answers("ada", 2, "hello")
    assert await page.does("revoke", channel="memory", sender="ada") == "ended"
    assert "pairing approve" in await page.engine.ask("hello?")
    assert "No one has been approved" in await page.shows()
    await page.does("revoke", channel="memory", sender="ada")
    assert await page.does("revoke", channel="memory", sender="ada") == "gone"


async def test_what_the_command_line_did_meanwhile_and_two_clicks_at_once_do_no_harm(
    page, tmp_path
):
    code = await page.code_of("ada")
    async with beside(tmp_path) as database:
        await database.write(lambda tx: pairing.approve(tx, "memory", code, page.engine.clock()))
    assert await page.does("approve", channel="memory", code=code) == "gone"
    code = await page.code_of("bob")
    clicks = [page.does("approve", channel="memory", code=code) for _ in range(3)]
    assert sorted(await asyncio.gather(*clicks)) == ["gone", "gone", "let_in"]
    await page.answers("bob", 2, "hello")
    assert sum(text.startswith("You're in.") for text in page.engine.sent_to("bob")) == 1


async def test_codes_that_are_over_are_neither_shown_nor_approved(page):
    code = await page.code_of("ada")
    page.engine.clock.advance(minutes=61)
    assert code not in await page.shows()
    assert await page.does("approve", channel="memory", code=code) == "gone"


async def test_what_names_nobody_changes_nothing(page):
    await page.code_of("ada")
    kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-99"}
    nobody = ({}, {"channel": "memory"}, {"channel": "\0", "sender": "'; --", "code": "x"})
    for what in ("approve", "block", "again", "unblock", "revoke", "part"):
        for fields in nobody:
            assert await page.does(what, **fields) == "gone", what
        where = f"/people/{what}"
        async with page.client.post(where, data=b"channel=%ff", headers=kind) as answer:
            assert answer.status == 400, what
        async with page.client.post(where, headers={"Origin": "null"}) as answer:
            assert answer.status == 403, what
    assert "asked today at" in await page.shows()


async def test_hostile_names_are_text_and_hundreds_who_ask_come_in_parts(page, tmp_path):

    def ask(number: int) -> Inbound:
        who, name = f"{HOSTILE}{number}", f"{HOSTILE * 40}\n{number}"
        return Inbound(
            f"chan{number % 4}", "work", who, "direct", who, "1", "hi", 0, sender_name=name
        )

    async with beside(tmp_path) as database:
        now = page.engine.clock()
        await database.write(
            lambda tx: [pairing.ask(tx, ask(n), f"CODE{n:04}", now - n * 1000) for n in range(240)]
        )
    first, second = await page.shows(), await page.shows("?asking=2")
    for shown in (first, second):
        assert "<script>" not in shown
        assert "\u202e" not in re.sub(r'<input type="hidden"[^>]*>', "", shown)
        assert shown.count('action="/people/block"') == 50
    assert "(240)" in first
    assert "Page 1 of 5" in first
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


async def test_the_page_speaks_chinese_and_says_only_what_it_knows(page):
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
        await until(lambda: bool(nodes.other.app.core.resolver.now.books.blocked))
        await nodes.other.say("hello?", sender="ada")
        await nodes.other.say("still here?", sender="zoe")
        assert (await nodes.answered(4))[3] == "You said: still here?"
        assert await page.does("again", channel="memory", sender="ada") == "again"
        await until(lambda: not nodes.other.app.core.resolver.now.books.blocked)
        await nodes.other.say("and now?", sender="ada")
        await until(lambda: "You said: and now?" in nodes.sent)
