"""Memory in the page, through the whole engine: each visitor reads and changes what is theirs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from html import unescape
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest
import pytest_asyncio

from bot.channel import HistoryItem
from bot.channel.http import Visitor
from bot.dashboard.browsers import Browsers
from bot.dashboard.guard import COOKIE
from bot.identity.view import MemoryView, folder_name
from bot.memory.index import MemoryIndex
from bot.memory.notes import Listed, SpaceFiles
from bot.memory.search import Building, Status
from bot.sessions.erasing import ASKED
from bot.storage.records import keep
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.web_pages import Chat
from tests.support import Engine, beside, pause, running, write_file

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = count()
TWICE = (
    "- I like <i>tea</i> <!-- owner 2026-01-05 -->\n- I like <i>tea</i> <!-- owner 2026-02-05 -->\n"
)
HOSTILE = "<script>alert(1)</script>"


@dataclass
class Browser:
    """Somebody's browser, and the folder of what they remember."""

    client: aiohttp.ClientSession
    url: str
    folder: Path

    def read(self, path: str) -> str:
        with (self.folder / path).open(encoding="utf-8", newline="") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        write_file(self.folder / path, text)

    async def get(self, where: str, /, **query: str) -> tuple[int, str]:
        """A page: its status and text."""
        async with self.client.get(f"{self.url}{where}", params=query) as answer:
            return answer.status, await answer.text()

    async def post(self, where: str, /, **fields: str) -> tuple[int, str, str]:
        """What a form is answered with: the status, where it leads, and the page at its end."""
        form = aiohttp.FormData(default_to_multipart=True)
        for name, value in fields.items():
            form.add_field(name, value)
        async with self.client.post(f"{self.url}{where}", data=form) as answer:
            first = answer.history[0] if answer.history else answer
            return first.status, str(answer.url.relative()), await answer.text()

    async def form(self, path: str, where: str = "memory/edit") -> dict[str, str]:
        """The fields of a note's form as they are sent when nothing is changed."""
        page = await self.seen(where, path=path)
        fields = dict(re.findall(r'name="(path|base|since)" value="([^"]*)"', page))
        (text,) = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
        return {**fields, "text": unescape(text)}

    async def seen(self, where: str, /, **query: str) -> str:
        """A page that is there."""
        status, text = await self.get(where, **query)
        assert status == 200, text
        return text


@dataclass
class House:
    """A running engine with pages, and browsers for it."""

    engine: Engine

    @asynccontextmanager
    async def browser(self, name: str = "", language: str = "en") -> AsyncGenerator[Browser]:
        """The owner's, or that of somebody who was let in by this name."""
        assert self.engine.app.address is not None
        url = self.engine.app.address.url
        workspace = self.engine.folder / "workspace"
        folder = workspace / "people" / folder_name(f"web:{name}") if name else workspace
        cookies = {COOKIE: f"let-in-as-{name}"} if name else {}
        headers = {"Accept-Language": language, "Accept": "text/html", "Origin": url.rstrip("/")}
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(
            cookies=cookies, cookie_jar=jar, headers=headers
        ) as client:
            yield Browser(client, url, folder)


@asynccontextmanager
async def house(folder: Path, **sections: Any) -> AsyncGenerator[House]:
    async def find(_browsers: Browsers, cookie: str) -> Visitor | None:
        return await Chat().guest(cookie)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Browsers, "find", find)
        patch.setattr("bot.memory.index.service.DEBOUNCE", 0.05)
        async with running(folder, serves=True, **sections) as engine:
            yield House(engine)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def it(tmp_path_factory):
    """One program for all tests here, in which each is somebody nobody else is."""
    session = {"owner": ("memory:ada",)}
    async with house(tmp_path_factory.mktemp("house"), session=session) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def owner(it):
    async with it.browser() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def me(it):
    async with it.browser(f"me{next(_numbers)}") as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def other(it):
    async with it.browser(f"other{next(_numbers)}") as found:
        yield found


def space_of(person: Browser) -> str:
    return f"people/{person.folder.name}"


NOTE = """# Trip

Some words before.

- 14:03 Peanuts are off <!-- owner -->
- Prefers trains <!-- agent 2026-07-01 -->
  and night trains
- The code is 4711 <!-- untrusted -->
- by hand
- 15:00 ~~Likes planes~~ <!-- agent 2026-05-01, in MEMORY.md until 2026-07-01 -->
"""


async def test_a_visitor_sees_their_own_files_and_what_is_shared(owner, me, other):
    owner.write("memory/owners.md", "- mine\n")
    me.write("memory/adas.md", "- hers\n")
    other.write("memory/bobs.md", "- his\n")
    owner.write("shared/how-to.md", "- for all\n")
    shown = await owner.seen("memory/advanced")
    hers = await me.seen("memory/advanced")
    assert "owners.md" in shown
    assert "shared/how-to.md" in shown
    assert "adas.md" not in shown
    assert "bobs.md" not in shown
    assert "adas.md" in hers
    assert "owners.md" not in hers
    assert "shared/how-to.md" in hers
    for path in (
        f"{space_of(me)}/memory/adas.md",
        f"{space_of(other)}/memory/bobs.md",
        "../confidant.db",
        "/etc/passwd",
        "memory/../MEMORY.md",
        "AGENTS.md",
        "shared",
        "",
        "memory/none.md",
        "memory/a\0b.md",
        "memory/" + "x" * 5_000 + ".md",
    ):
        assert (await owner.get("memory/file", path=path))[0] == 404
        assert (await me.get("memory/file", path=path))[0] == 404
    assert (await me.get("memory/file", path="memory/owners.md"))[0] == 404


async def test_what_was_found_of_it_at_night_is_told_to_whose_it_is(it, owner, me):
    me.write("memory/adas.md", "- hers\n")
    async with beside(it.engine.folder) as database:
        for space, name in (("main", "owners.md"), (space_of(me), "adas.md")):
            value = f'{{"at":1,"asked":4,"found":3,"missed":[["memory/{name}",7,2]]}}'
            await database.write(
                lambda tx, key=f"{ASKED}{space}", value=value: keep(tx, key, value, 1)
            )
    shown, hers = await owner.seen("memory/advanced"), await me.seen("memory/advanced")
    assert "3 of 4 notes found (75 %)" in shown
    assert "memory/owners.md:7" in shown
    assert "notes, 75 % are found" in shown
    assert "memory/adas.md:7" not in shown
    assert "memory/adas.md:7" in hers
    assert "owners.md:7" not in hers
    assert "everyone else" not in hers


async def test_a_note_has_an_anchor_a_line_and_says_whose_words_it_holds(me):
    me.write("memory/2026-07-02.md", NOTE)
    page = await me.seen("memory/file", path="memory/2026-07-02.md")
    assert all(f'id="L{number}"' in page for number in (1, 3, 5, 6, 7, 8, 9, 10))
    assert "<h2>Trip</h2>" in page
    for words in ("said by you", "concluded", "from elsewhere", "written by hand"):
        assert words in page
    assert "no longer true since 2026-07-01" in page
    assert 'href="/memory/file?path=MEMORY.md"' in page
    assert "&lt;!--" not in page


async def test_hostile_names_and_words_are_only_words(me):
    name = 'memory/"><img src=x onerror=alert(1)>.md'
    me.write(name, f"# {HOSTILE}\n\n- {HOSTILE} [x](javascript:alert(1)) ![y](http://e/x.png)\n")
    me.write("memory/odd.md", "<!-- " * 50_000 + "- a\n" + "```\n# no heading\n")
    listed = await me.seen("memory", order="topic") + await me.seen("memory/advanced")
    page = await me.seen("memory/file", path=name)
    await me.seen("memory/file", path="memory/odd.md")
    for text in (listed, page):
        assert "<script>alert" not in text
        assert "<img" not in text
        assert 'href="javascript:' not in text
        assert "style=" not in text


async def test_a_long_note_is_shown_in_parts(me):
    me.write("memory/long.md", "".join(f"- entry {n}\n" for n in range(1, 2_501)))
    first = await me.seen("memory/file", path="memory/long.md")
    other = await me.seen("memory/file", path="memory/long.md", line="1700")
    odd = await me.seen("memory/file", path="memory/long.md", line="99999999999")
    assert 'id="L1000"' in first
    assert 'id="L1001"' not in first
    assert 'line=1001#L1001"' in first
    assert 'id="L1700"' in other
    assert 'id="L1000"' not in other
    assert 'id="L1"' in odd


# --- entry by entry ------------------------------------------------------------------------------


ENTRIES = {
    "MEMORY.md": (
        "# Memory\n\n<!-- - no entry -->\nKeeps <b>bees</b>.\n\n## Food\n\n"
        "- Likes *plum* cake <!-- owner 2026-05-03 -->\n- Eats late <!-- agent 2025-12-31 -->\n"
        "- ~~Likes beer~~ <!-- owner 2026-01-01, until 2026-02-01, let go -->\n"
    ),
    "memory/2026-11-20.md": "# 2026-11-20\n\n- 10:00 Buys boats <!-- owner -->\n- 11:00 later\n",
    "memory/trip.md": "# Trip\n\n- [ ] book a berth <!-- untrusted 2026-11-21 -->\n",
}


def in_order(page: str, *words: str) -> bool:
    places = [page.find(each) for each in words]
    return -1 not in places and places == sorted(places)


async def test_entries_are_listed_newest_first_and_by_topic_and_say_where_they_come_from(me):
    for path, text in ENTRIES.items():
        me.write(path, text)
    newest, topics = await me.seen("memory"), await me.seen("memory", order="topic")
    assert in_order(newest, "berth", "later", "boats", "plum", "Eats late", "bees")
    assert in_order(newest, ">Today<", ">Yesterday<", ">3 May<", ">31 December 2025<", ">No date<")
    assert in_order(topics, ">Memory<", "bees", ">Food<", "plum", ">Trip<", ">Day by day<", "later")
    assert "<em>plum</em>" in newest
    assert "☐ book a berth" in newest
    told = (
        "You said it on 3 May",
        "I concluded it on 31 December 2025",
        "From another source",
    )
    assert [each for each in (*told, "Written by hand yesterday") if each not in newest] == []
    assert "not used yet" in newest
    for hidden in ("no entry", "beer", "<b>bees", "10:00"):
        assert hidden not in newest
    async with me.client.get(f"{me.url}memory", headers={"Accept-Language": "zh"}) as answer:
        translated = await answer.text()
    assert in_order(
        translated, ">今天<", ">昨天<", "你5月3日说的", "我2025年12月31日推断的", "没有日期"
    )


async def test_what_is_shared_stands_apart_and_only_the_owner_changes_it(owner, me):
    owner.write("shared/door.md", "- The door code is <i>4711</i>\n")
    me.write("MEMORY.md", "- Mine alone\n")
    own, of_all = await me.seen("memory"), await me.seen("memory", of="all")
    assert "Mine alone" in own
    assert "door code" not in own
    assert "door code is &lt;i&gt;4711" in of_all
    assert "Mine alone" not in of_all
    assert "Mine alone" not in await owner.seen("memory")
    assert "/entry?" not in of_all
    links = re.findall(r'href="/(memory/shared/entry[^"]*)', await owner.seen("memory", of="all"))
    (link,) = (each for each in links if "door" in each)
    path, asked = unescape(link).split("?")
    form = await owner.seen(path, **dict(parse_qsl(asked)))
    assert "The door code is" in form
    assert (await me.get(path, **dict(parse_qsl(asked))))[0] == 403
    sent = dict(re.findall(r'name="(path|claim|base|order|part)" value="([^"]*)"', form))
    _, where, page = await owner.post("memory/shared/entry", **sent, text="It is 4712")
    assert where.startswith("/memory?of=all&order=new&part=1&path=shared")
    assert "It is 4712" in page
    assert owner.read("shared/door.md") == "- It is 4712\n"


async def test_a_note_of_5000_entries_is_shown_in_parts(me):
    me.write("memory/long.md", "".join(f"- entry number {n}\n" for n in range(5_000)))
    first = await me.seen("memory", order="topic")
    last = await me.seen("memory", order="topic", part="100")
    assert first.count("<li>\n<div") == 50
    assert "Part 1 of 100" in first
    assert "part=2" in first
    assert "entry number 4999" in last
    assert "part=101" not in last
    for odd in ("0", "-1", "x", "9999999"):
        await me.seen("memory", order=odd, part=odd)


def entry(page: str, words: str) -> dict[str, str]:
    """What the forms of the one entry with these words send."""
    rows = re.findall(r"<li>\n<div.*?</li>", page, re.DOTALL)
    (row,) = (each for each in rows if words in each)
    return dict(re.findall(r'name="(path|claim|words|order|part)" value="([^"]*)"', row))


async def test_an_entry_is_edited_where_it_stands_and_that_can_be_undone(me):
    before = "# Days\n\n- one <!-- owner 2026-01-01 -->\n- two\n  more <!-- x -->\n\nthe end\n"
    me.write("MEMORY.md", before)
    two = entry(await me.seen("memory"), "two")
    form = await me.seen("memory/entry", path=two["path"], claim=two["claim"])
    assert ">\ntwo\nmore</textarea>" in form
    (base,) = re.findall(r'name="base" value="([^"]*)"', form)
    sent = {"path": "MEMORY.md", "claim": two["claim"], "base": base, "order": "topic", "part": "1"}
    status, where, page = await me.post("memory/entry", **sent, text="2 <!-- --> and\r\n3")
    assert (status, where.split("&")[0]) == (303, "/memory?order=topic")
    after = "- 2 <!- - - -> and <!-- owner 2026-11-21 -->\n  3\n"
    assert me.read("MEMORY.md") == before.replace("- two\n  more <!-- x -->\n", after)
    done = page.partition('class="done"')[2].partition("</form>")[0]
    undo = dict(re.findall(r'name="(path|text|base)" value="([^"]*)"', done))
    assert (await me.post("memory/back", **undo))[0] == 303
    assert me.read("MEMORY.md") == before
    me.write("MEMORY.md", before.replace("more", "less"))
    status, _, page = await me.post("memory/entry", **sent, text="mine")
    assert status == 409
    assert "changed in the meantime" in page
    assert "mine</textarea>" in page
    assert "less" in me.read("MEMORY.md")
    for text in ("", " \n", "x" * 4_001):
        assert (await me.post("memory/entry", **sent, text=text))[0] == 400


async def test_the_buttons_of_an_entry_strike_it_out_and_ask_before_it_is_forgotten(me, other):
    me.write("MEMORY.md", "- The boat is red <!-- agent 2026-11-01 -->\n- The boat is slow\n")
    me.write("memory/boat.md", "- the boat is red\n- The boat is red, they say\n")
    rows = re.findall(r"<li>\n<div.*?</li>", await me.seen("memory"), re.DOTALL)
    red = entry(next(row for row in rows if "concluded" in row), "red")
    assert "The boat is red" not in await other.seen("memory")
    status, _, page = await other.post("memory/wrong", **red)
    assert status == 404
    _, where, page = await me.post("memory/wrong", **red)
    assert where == "/memory?order=new&part=1&told=struck"
    assert "Struck out" in page
    assert "~~the boat is red~~" in me.read("memory/boat.md")  # wherever it stands
    assert "boat is red<" not in page
    assert "boat is red, they say" in page
    slow = entry(page, "slow")
    _, _, asked = await me.post("memory/forget", words=slow["words"])
    assert "The boat is slow" in asked
    assert "slow" in me.read("MEMORY.md")
    await me.post("memory/forgotten", words=slow["words"])
    assert "slow" not in me.read("MEMORY.md")


async def test_an_entry_leads_to_the_message_it_came_from(it, owner, me):
    await it.engine.ask("please note: my heron nests on the island")
    owner.write(
        "memory/2026-11-21.md",
        "- 12:00 My heron nests on the island <!-- owner -->\n- Nobody said so <!-- owner -->\n",
    )
    page = await owner.seen("memory")
    links = [
        dict(parse_qsl(unescape(each))) for each in re.findall(r"/memory/source\?([^\"]*)", page)
    ]
    ours = [each for each in links if each["path"] == "memory/2026-11-21.md"]
    found = {}
    for link in ours:
        async with owner.client.get(f"{owner.url}memory/source", params=link) as answer:
            found[str(answer.url.relative()).split("?")[0]] = await answer.text()
    (talk,) = (where for where in found if where.startswith("/conversations/"))
    assert 'class="said mine found"' in found[talk]
    assert "my heron nests on the island" in found[talk]
    assert "find the message" in found["/memory"]
    assert (await me.get("memory/source", **ours[0]))[1].count("nests") == 0


# --- what a reply was given ----------------------------------------------------------------------


async def test_a_reply_tells_how_much_memory_it_was_given_and_leads_there(tmp_path):
    write_file(tmp_path / "workspace/memory/boat.md", "# Boat\n\n- The boat is called ORINOCO\n")
    session = {"owner": ("memory:ada",)}

    async def lines(it: House) -> dict[str, HistoryItem]:
        channel = it.engine.channel.engine
        found = await channel.history(it.engine.message("").address, 50)
        return {line.text: line for line in found}

    async def sources(browser: Browser, reply: str) -> list[dict[str, str]]:
        status, text = await browser.get("api/sources", message=reply)
        assert status == 200
        return json.loads(text)

    async with house(tmp_path, session=session) as it, it.browser() as owner:
        await it.engine.ask("My cousin Ida moved to Lyon")
        await it.engine.ask("/new")
        told = await it.engine.ask("What is the boat called?")
        (sent,) = (each for each in it.engine.channel.sent if each.text == told)
        reply = (await lines(it))[told]
        assert reply.id == sent.id
        assert reply.sources == sent.whole.sources > 0
        found = await sources(owner, reply.id)
        assert len(found) == reply.sources
        (boat,) = (each for each in found if "ORINOCO" in each["text"])
        assert boat["where"].startswith("memory/boat.md:")
        assert "called ORINOCO" in await owner.seen(boat["link"].partition("#")[0].lstrip("/"))
        talk = next(each for each in found if "Ida" in each["text"])
        assert "cousin Ida" in await owner.seen(talk["link"].partition("#")[0].lstrip("/"))
        async with it.browser("ada") as other:
            assert await sources(other, reply.id) == []
        for odd in ("", "x", "a.b", reply.id + "1", "../" * 90, "' OR 1=1"):
            assert await sources(owner, odd) == []
    async with house(tmp_path, session=session) as it, it.browser() as owner:
        assert (await lines(it))[told] == reply  # it is stored with the turn
        await owner.post("memory/forgotten", words="ORINOCO")
        left = await sources(owner, reply.id)
        assert "ORINOCO" not in str(left)
        assert [line.sources for line in (await lines(it)).values() if line.id == reply.id] == [
            len(left)
        ]


# --- changing ------------------------------------------------------------------------------------


async def test_the_list_is_looked_through_again_after_an_edit_and_only_then(tmp_path, monkeypatch):
    looks: list[str] = []
    real = SpaceFiles.names

    async def names(files: SpaceFiles, view: MemoryView) -> list[Listed]:
        looks.append(view.space)
        return await real(files, view)

    monkeypatch.setattr(SpaceFiles, "names", names)
    memory = {"watch": True}
    async with (
        house(tmp_path, memory=memory) as it,
        it.browser() as owner,
        it.browser("ada") as ada,
    ):
        before = -1
        while before != len(looks):  # edits are noticed from some moment on
            before = len(looks)
            await owner.seen("memory")
            await pause(0.1)
        status, _, _ = await owner.post("memory/add", path="", text="soup on Mondays")
        assert status == 303
        assert "soup on Mondays" in await owner.seen("memory")
        assert "soup" not in await ada.seen("memory")
        owner.write("memory/by-hand.md", "- bread\n")
        while "by-hand.md" not in await owner.seen("memory/advanced"):
            await pause(0.1)
        assert "<p>bread" in await owner.seen("memory")


async def test_an_edit_is_saved_and_can_be_taken_back(me):
    me.write("memory/trip.md", "\n- one & <two>\n")
    form = await me.form("memory/trip.md")
    assert form["text"] == "\n- one & <two>\n"
    status, where, page = await me.post("memory/edit", **{**form, "text": "- three\r\n"})
    assert status == 303
    assert where.startswith("/memory/file?path=memory/trip.md&kept=")
    assert me.read("memory/trip.md") == "- three\n"
    assert 'role="status"' in page
    back = dict(re.findall(r'name="(path|text|base)" value="([^"]*)"', page))
    assert (await me.post("memory/back", **back))[0] == 303
    assert me.read("memory/trip.md") == "\n- one & <two>\n"
    history = await me.seen("memory/history", path="memory/trip.md")
    assert "an edit" in history
    assert "an earlier version" in history
    version = re.findall(r"version=(\d+)", history)[-1]
    shown = await me.seen("memory/history", path="memory/trip.md", version=version)
    assert "No differences." in shown


async def test_line_ends_stay_as_they_are(me):
    me.write("memory/dos.md", "- a\r\n- b\r\n")
    form = await me.form("memory/dos.md")
    await me.post("memory/edit", **{**form, "text": "- a\r\n- c\r\n"})
    assert me.read("memory/dos.md") == "- a\r\n- c\r\n"


async def test_what_was_changed_meanwhile_is_kept_beside_what_was_sent(me):
    me.write("memory/trip.md", "- one\n")
    form = await me.form("memory/trip.md")
    me.write("memory/trip.md", "- one\n- the bot's\n")
    status, _, page = await me.post("memory/edit", **{**form, "text": "- mine\n"})
    assert status == 409
    assert me.read("memory/trip.md") == "- one\n- the bot's\n"
    assert "- mine\n</textarea>" in page
    assert "<del>" in page
    history = await me.seen("memory/history", path="memory/trip.md")
    assert "set aside" in history
    (base,) = re.findall(r'name="base" value="([^"]*)"', page)
    again = {**form, "text": "- mine\n", "base": base}
    assert (await me.post("memory/edit", **again))[0] == 303
    assert me.read("memory/trip.md") == "- mine\n"
    history = await me.seen("memory/history", path="memory/trip.md")
    assert history.count("version=") == 2


async def test_an_entry_is_added_as_said_by_whoever_adds_it(me, other):
    status, where, page = await me.post("memory/add", path="", text="Buys -->\nboats")
    assert (status, where.partition("&")[0]) == (303, "/memory/file?path=memory/2026-11-21.md")
    assert "said by you" in page
    assert me.read("memory/2026-11-21.md").endswith("Buys - -> <!-- owner -->\n  boats\n")
    await me.post("memory/add", path="MEMORY.md", text="Likes trains")
    assert "- Likes trains <!-- owner 2026-11-21 -->" in me.read("MEMORY.md")
    await other.post("memory/add", path="", text="Hers alone")
    assert "Hers alone" in other.read("memory/2026-11-21.md")
    for text in ("", "  ", "x" * 5_000):
        assert (await me.post("memory/add", path="", text=text))[0] == 400


async def test_nothing_is_written_where_a_visitor_may_not(owner, me):
    owner.write("shared/how-to.md", "- for all\n")
    owner.write("memory/owners.md", "- mine\n")
    before = {path: path.read_bytes() for path in owner.folder.rglob("*.md")}
    names = ("shared/how-to.md", "../memory/owners.md", "AGENTS.md", "x.txt", "", "/x.md")
    for path in names:
        assert (await me.get("memory/edit", path=path))[0] == 404
        assert (await me.get("memory/history", path=path))[0] == 404
        sent = {"path": path, "text": "- hers\n", "base": "", "since": "0"}
        assert (await me.post("memory/edit", **sent))[0] == 404
        if path:
            assert (await me.post("memory/add", **sent))[0] == 404
        assert (await me.post("memory/back", **{**sent, "text": "1"}))[0] == 404
    assert {path: path.read_bytes() for path in owner.folder.rglob("*.md")} == before


async def test_the_versions_of_anothers_note_are_not_there(me, other):
    me.write("memory/trip.md", "- secret\n")
    form = await me.form("memory/trip.md")
    await me.post("memory/edit", **{**form, "text": "- public\n"})
    page = await me.seen("memory/history", path="memory/trip.md")
    (version,) = set(re.findall(r"version=(\d+)", page))
    query = {"path": "memory/trip.md", "version": version}
    assert "secret" in await me.seen("memory/history", **query)
    assert (await other.get("memory/history", **query))[0] == 404
    empty = await other.form("memory/trip.md")
    sent = {"path": "memory/trip.md", "text": version, "base": empty["base"]}
    assert (await other.post("memory/back", **sent))[0] == 404


@pytest.mark.parametrize("text", ["a\0b", "x" * 1_000_001])
async def test_what_is_no_note_is_refused(me, text):
    me.write("memory/trip.md", "- one\n")
    form = await me.form("memory/trip.md")
    status, _, page = await me.post("memory/edit", **{**form, "text": text})
    assert status == 409
    assert "Not saved" in page
    whole = {"Content-Type": "multipart/form-data; boundary=b"}
    url, body = f"{me.url}memory/edit", io.BytesIO(b"x" * 3_000_000)
    async with me.client.post(url, data=body, headers=whole) as answer:
        assert answer.status == 413
    assert me.read("memory/trip.md") == "- one\n"


async def test_a_note_that_cannot_be_written_back_is_not_opened(owner, me):
    write_file(me.folder / "memory" / "latin.md", b"- caf\xe9\n")
    (me.folder / "memory" / "huge.md").write_bytes(b"- %b\n" % (b"x" * 60) * 20_000)
    (me.folder / "memory" / "linked.md").symlink_to(owner.folder / "AGENTS.md")
    assert (await me.get("memory/edit", path="memory/latin.md"))[0] == 409
    assert (await me.get("memory/edit", path="memory/huge.md"))[0] == 409
    assert (await me.get("memory/edit", path="memory/linked.md"))[0] == 404
    assert "caf" in await me.seen("memory/file", path="memory/latin.md")
    assert 'id="L1000"' in await me.seen("memory/file", path="memory/huge.md")


async def test_a_change_by_hand_can_be_taken_back_and_forgotten(me):
    before = "# Trip\r\n\r\n- peanuts are off\r\n- trains\r\n"
    me.write("memory/trip.md", before)
    await looked_through(me)
    await found(me, "trains")
    me.write("memory/trip.md", "- airships\n")
    await found(me, "airships")
    page = await me.seen("memory/history", path="memory/trip.md")
    assert "a change by hand" in page
    (version,) = re.findall(r"version=(\d+)", page)
    base = (await me.form("memory/trip.md"))["base"]
    fields = {"path": "memory/trip.md", "base": base, "text": version}
    assert (await me.post("memory/back", **fields))[0] == 303
    assert me.read("memory/trip.md") == before.replace("\r\n", "\n")
    await me.post("memory/forgotten", words="peanuts")
    shown = await me.seen("memory/history", path="memory/trip.md", version=version)
    assert "trains" in me.read("memory/trip.md")
    assert "peanuts" not in shown


async def test_versions_are_bounded(me, monkeypatch):
    monkeypatch.setattr("bot.memory.versions.MOST", 3)
    monkeypatch.setattr("bot.memory.versions.MOST_BYTES", 1_000)
    for path, size in (("memory/a.md", 2), ("memory/b.md", 400)):
        me.write(path, "first\n")
        for number in range(6):
            form = await me.form(path)
            await me.post("memory/edit", **{**form, "text": f"{number}" * size})
    first = await me.seen("memory/history", path="memory/a.md")
    second = await me.seen("memory/history", path="memory/b.md")
    assert len(set(re.findall(r"version=(\d+)", first))) == 0
    assert len(set(re.findall(r"version=(\d+)", second))) == 2


@pytest.mark.parametrize(
    ("is_first", "said"),
    [(False, "being rebuilt: 3 of 7 files"), (True, "is being built: 3 of 7 files")],
)
async def test_how_far_the_index_is_is_shown(it, me, monkeypatch, *, is_first, said):
    real = MemoryIndex.status

    async def status(index: MemoryIndex) -> Status:
        told = Building(3, 7, is_first=is_first, by_meaning=False)
        return replace(await real(index), building=told)

    monkeypatch.setattr(MemoryIndex, "status", status)
    page = await me.seen("memory/advanced")
    assert '<progress max="7" value="3"' in page
    assert said in page
    assert said in await it.engine.ask("/memory")


# --- what is shared with everyone -----------------------------------------------------------------


SHARED = "memory/shared/edit"


@pytest.mark.parametrize("kind", ["files", "rows"])
async def test_the_owner_changes_what_everyone_reads_at_once(tmp_path, request, kind):
    storage = {"url": request.getfixturevalue("postgres_url")} if kind == "rows" else {}
    path = "shared/guides/how-to.md"
    async with (
        house(tmp_path, storage=storage) as it,
        it.browser() as owner,
        it.browser("ada") as ada,
    ):
        form = await owner.form(path, SHARED)
        assert form["text"] == ""
        new = {**form, "text": "# How to\n\n- bread in the pantry\n"}
        assert (await owner.post("memory/shared/edit", **new))[0] == 303
        assert "bread" in await ada.seen("memory/file", path=path)
        assert path in await ada.seen("memory/advanced")
        assert "bread in the pantry" in await ada.seen("memory", of="all")
        assert path in await found(ada, "bread")
        _, _, page = await owner.post("memory/shared/add", path=path, text="soup on Mondays")
        assert "soup" in page
        assert "written by hand" in page
        assert "said by you" not in page
        await found(owner, "soup")
        assert "soup on Mondays" in await it.engine.ask("/memory search soup Mondays")

        old = await owner.form(path, SHARED)
        edited = {**old, "text": "- rice in the cellar\n"}
        assert (await owner.post("memory/shared/edit", **edited))[0] == 303
        status, _, page = await owner.post("memory/shared/edit", **{**old, "text": "- mine"})
        assert (status, "saved among the earlier versions" in page) == (409, True)
        assert (await owner.post("memory/shared/remove", path=path, base=old["base"]))[0] == 409
        assert "rice" in await ada.seen("memory/file", path=path)
        base = (await owner.form(path, SHARED))["base"]
        status, where, page = await owner.post("memory/shared/remove", path=path, base=base)
        assert (status, where.partition("?")[0]) == (303, "/memory/shared/history")
        assert "the file was removed" in page
        assert (await ada.get("memory/file", path=path))[0] == 404
        assert path not in await ada.seen("memory")
        version = re.findall(r"version=(\d+)", page)[0]
        page = await owner.seen("memory/shared/history", path=path, version=version)
        (base,) = set(re.findall(r'name="base" value="([^"]*)"', page))
        back = await owner.post("memory/shared/back", path=path, base=base, text=version)
        assert back[0] == 303
        assert "rice" in await ada.seen("memory/file", path=path)


async def test_nobody_but_the_owner_changes_what_is_shared(owner, me):
    path = "shared/how-to.md"
    owner.write(path, "- bread\n")
    page = await me.seen("memory/file", path=path)
    assert "/memory/shared/" not in page + await me.seen("memory")
    assert "/memory/shared/edit" in await owner.seen("memory/file", path=path)
    fields = await owner.form(path, SHARED)
    for other in ("memory/day.md", "MEMORY.md", "shared/../memory/x.md", "shared", "x.md"):
        assert (await owner.get("memory/shared/edit", path=other))[0] == 404
        assert (await owner.post("memory/shared/add", path=other, text="x"))[0] == 404
    for way in ("edit", "add", "back", "remove"):
        for at in ("memory/shared", "memory") if way != "remove" else ("memory/shared",):
            status, _, _ = await me.post(f"{at}/{way}", **{**fields, "text": "1"})
            assert status in {403, 404}, (at, way)
    for way in ("edit", "history"):
        assert (await me.get(f"memory/shared/{way}", path=path))[0] == 403
    assert owner.read(path) == "- bread\n"


# --- forgetting ----------------------------------------------------------------------------------


def kept(it: House, person: Browser) -> str:
    rows = query(it.engine.folder, "SELECT space, text FROM note_versions")
    return str([text for space, text in rows if space == space_of(person)])


async def test_forgetting_shows_what_would_go_and_then_it_is_gone_everywhere(it, owner, me):
    me.write("memory/trip.md", "- peanuts are off\n- trains\n- pea\n- nuts\n")
    owner.write("shared/how-to.md", "- peanuts for all\n")
    form = await me.form("memory/trip.md")
    await me.post("memory/edit", **{**form, "text": "- PEANUTS\n- boats\n"})
    assert "peanuts" in kept(it, me)
    status, where, page = await me.post("memory/forget", words=" peanuts ")
    assert (status, where) == (200, "/memory/forget")
    assert "memory/trip.md:1" in page
    assert "how-to" not in page
    assert "1 earlier version of files" in page
    assert "PEANUTS" in me.read("memory/trip.md")
    status, where, page = await me.post("memory/forgotten", words="peanuts")
    assert status == 303
    assert "peanuts" not in where
    assert "1 entry removed, in 1 file" in page
    assert me.read("memory/trip.md") == "- boats\n"
    assert "peanuts" in owner.read("shared/how-to.md")
    assert "peanuts" not in kept(it, me)
    assert "trains" in kept(it, me)
    nowhere = await me.post("memory/forget", words="peanuts")
    assert nowhere[0] == 400
    assert "in none of your files" in nowhere[2]


@pytest.mark.parametrize("how", ["page", "command"])
async def test_a_form_from_before_brings_nothing_forgotten_back(it, owner, how):
    path = f"memory/{how}.md"
    owner.write(path, "- peanuts are off\n- trains\n")
    form = await owner.form(path)
    await owner.post("memory/edit", **{**form, "text": "- peanuts\n"})
    form = await owner.form(path)
    if how == "page":
        await owner.post("memory/forgotten", words="peanuts")
    else:
        asked = await it.engine.ask("/memory forget peanuts")
        assert "1 earlier version" in asked
        assert "1 earlier version of files cleared of it" in await it.engine.ask(
            "/memory forget yes"
        )
    versions = "SELECT text FROM note_versions WHERE space = 'main'"
    assert "peanuts" not in str(query(it.engine.folder, versions))
    status, _, page = await owner.post("memory/edit", **{**form, "text": "- peanuts\n- boats\n"})
    assert status == 409
    assert "your text was not saved" in page
    assert "- boats\n</textarea>" in page
    assert owner.read(path) == ""
    assert "peanuts" not in str(query(it.engine.folder, versions))


async def test_words_that_run_over_two_entries_take_the_version_with_them(it, me):
    me.write("memory/trip.md", "secret\nplan\n")
    form = await me.form("memory/trip.md")
    await me.post("memory/edit", **{**form, "text": "boats\n"})
    await me.post("memory/forgotten", words="secret plan")
    assert kept(it, me) == "[]"


async def test_what_another_forgets_leaves_ones_own(it, me, other):
    me.write("memory/trip.md", "- peanuts\n")
    other.write("memory/trip.md", "- peanuts\n")
    for who in (me, other):
        form = await who.form("memory/trip.md")
        await who.post("memory/edit", **{**form, "text": "- peanuts and boats\n"})
    await other.post("memory/forgotten", words="peanuts")
    assert other.read("memory/trip.md") == ""
    assert me.read("memory/trip.md") == "- peanuts and boats\n"
    assert "- peanuts" in kept(it, me)
    assert "peanuts" not in kept(it, other)


# --- searching -----------------------------------------------------------------------------------


async def looked_through(browser: Browser) -> None:
    """Wait for the index: until there is one, searches read the notes themselves."""
    while "Files last checked" not in await browser.seen("memory/advanced"):
        await pause(0.1)


async def found(browser: Browser, query: str, words: str = "") -> str:
    """The answer to a search, once a note says the words: what is written is indexed beside."""
    while True:
        page = await browser.seen("memory/search", q=query)
        if (words or query) in page.partition("<ol")[2]:
            return page
        await pause(0.1)


async def test_a_search_says_why_and_nothing_when_nothing_fits(owner, me, other):
    me.write("memory/2026-11-20.md", "# Harbour\n\n- 10:00 The <b>boats</b> are blue\n")
    me.write("memory/food.md", "# Food\n\n- risotto with mushrooms\n")
    owner.write("people/bob/memory/his.md", "- boats of Bob\n")
    page = await found(me, "boats")
    heading = await found(me, "harbour", "blue")
    dated = await found(me, "what of 2026-11-20 boats", "blue")
    nothing = await me.seen("memory/search", q="zeppelin")
    hers = await other.seen("memory/search", q="boats")
    assert (await me.get("memory/search", q="x" * 501))[0] == 400
    assert "<ol" not in await me.seen("memory/search", q="")
    assert "matched by words: boats" in page
    assert "&lt;b&gt;boats" in page
    assert 'href="/memory/file?path=memory%2F2026-11-20.md#L1"' in page
    assert "risotto" not in page
    assert "Bob" not in page
    assert "by words only" in page
    assert "the heading: harbour" in heading
    assert "date" in dated
    assert "I found nothing that matches." in nothing
    assert "I found nothing that matches." in hers


async def test_a_search_returns_what_people_said_and_not_what_the_bot_replied(
    tmp_path, monkeypatch
):
    model = ScriptedModel(script=lambda _: "Zeppelins are airships, as I told you.")
    owner_ids = {"owner": ("memory:ada",)}
    async with house(tmp_path, model=model, session=owner_ids) as it:
        await it.engine.ask("I collect zeppelins")
        async with it.browser() as owner:
            while "collect zeppelins" not in (
                page := await owner.seen("memory/search", q="zeppelins")
            ):
                await pause(0.1)
        said = await it.engine.ask("/memory search zeppelins")
    assert "airships" not in page
    assert "airships" not in said
    assert "I collect zeppelins" in said
    assert "matched by words: zeppelins" in said
    assert "(0." not in said


async def test_notes_in_a_database_are_changed_and_forgotten_as_files_are(
    tmp_path, monkeypatch, postgres_url
):
    storage = {"url": postgres_url}
    async with house(tmp_path, storage=storage) as it, it.browser() as owner:
        status, where, page = await owner.post("memory/add", path="", text="peanuts are off")
        assert status == 303
        assert "said by you" in page
        assert 'id="L3"' in page
        (note,) = re.findall(r"path=([^&]*)", where)  # the day is the database's
        form = await owner.form(note)
        status, _, page = await owner.post("memory/edit", **{**form, "text": "- trains\n"})
        assert status == 303
        stale = {**form, "text": "- peanuts\n"}
        assert "earlier version" in (await owner.post("memory/forget", words="peanuts"))[2]
        await owner.post("memory/forgotten", words="peanuts")
        history = await owner.seen("memory/history", path=note)
        version = re.findall(r"version=(\d+)", history)[-1]
        shown = await owner.seen("memory/history", path=note, version=version)
        assert "peanuts" not in shown
        status, _, page = await owner.post("memory/edit", **stale)
        assert (status, "your text was not saved" in page) == (409, True)
        assert "trains" in await owner.seen("memory/file", path=note)
        assert "trains" in await found(owner, "trains")
        assert note in await owner.seen("memory")


# --- the night ------------------------------------------------------------------------------------


async def test_what_the_night_changed_is_shown_to_whose_it_is_and_taken_back(it, owner, me):
    note = f"- I live in <b>Bonn</b> <!-- owner 2026-01-05 -->\n{TWICE}"
    for each in (owner, me):
        each.write("MEMORY.md", note)
    view = MemoryView(space_of(me), (), private=True)
    keeper = it.engine.app.maintenance.nights.keeper
    assert await keeper.look(view, date(2026, 7, 1), 10) is not None
    assert "have not been changed at night" in await owner.seen("memory/night")
    assert 'href="/memory/night"' in await me.seen("memory")
    page = await me.seen("memory/night")
    assert "in the night of 2026-07-01" in page
    assert "says the same, struck out" in page
    shown = await me.seen("memory/file", path="MEMORY.md")
    assert "merged on 2026-07-01 with an entry that says the same" in shown
    history = await me.seen("memory/history", path="MEMORY.md")
    assert "a change of mine at night" in history
    status, where, page = await me.post("memory/night", x="")
    assert (status, where) == (303, "/memory/night?back=2&left=0")
    assert "Undone: 2 entries of your notes are back as before." in page
    assert "were undone" in page
    assert me.read("MEMORY.md") == note
    # Once more it is nothing.
    assert (await me.post("memory/night", x=""))[1] == "/memory/night"
    assert (await owner.post("memory/night", x=""))[1] == "/memory/night"
    me.client.headers["Accept-Language"] = "zh"
    assert "2026-07-01 的夜间整理已撤回" in await me.seen("memory/night")
    # What is asked is done, or left, by a button of its own.
    old = "- Collects stamps <!-- agent 2019-01-05 -->\n"
    me.write("MEMORY.md", old)
    assert await keeper.look(view, date(2026, 7, 2), 10) is not None
    page = await me.seen("memory/night")
    assert "这些也可以划掉吗" in page
    assert "Collects stamps" in page
    assert (await me.post("memory/night", answer="yes", day="x"))[0] == 400
    _, _, page = await me.post("memory/night", answer="yes", day="2026-07-02")
    assert "已放下，划掉" in page
    assert "~~Collects stamps~~" in me.read("MEMORY.md")
    await me.post("memory/night", do="undo")
    assert me.read("MEMORY.md") == old


# --- agents with memory of their own -------------------------------------------------------------

OF_FAMILY = {"agent": "family"}


@asynccontextmanager
async def with_agents(folder: Path, **sections: Any) -> AsyncGenerator[Browser]:
    """Ines, who may talk to one of two agents with memory of their own, in another channel."""
    links = {"ines": ("web:ines", "memory:42")}
    agents = {
        "family": {"name": "Pip", "memory": "own", "bind": [{"sender": "42"}]},
        "others": {"memory": "own", "bind": [{"sender": "7"}, {"chat": "den"}]},
        "cook": {"bind": [{"sender": "42", "thread": "t"}]},
    }
    session = {"identity_links": links, "owner": ("memory:ada",)}
    for space, bird in (("people/ines", "heron"), ("agents/family/people/ines", "egret")):
        for name in ("MEMORY.md", "memory/birds.md"):
            note = f"# Birds\n\n- The {bird} is a bird <!-- owner 2026-01-05 -->\n"
            write_file(folder / "workspace" / space / name, note)
    async with house(folder, session=session, agents=agents, **sections) as found:
        await found.engine.app.agent.memory.index.sync("test")
        async with found.browser("ines") as ines:
            yield replace(ines, folder=folder / "workspace" / "agents/family/people/ines")


def addresses(page: str) -> set[str]:
    """Where the links and forms of a page lead, but for the menu's."""
    found = re.findall(r'(?:href|action)="/(memory[^"#]*)', page.partition("<main")[2])
    return {unescape(each) for each in found}


async def test_the_memory_of_another_agent_is_looked_at_and_no_page_leads_out_of_it(tmp_path):
    async with with_agents(tmp_path) as ines:
        usual = await ines.seen("memory")
        assert "heron" in usual
        assert "egret" not in usual
        assert re.findall(r'<option value="(.*?)"', usual) == ["", "family"]
        assert ">Pip</option>" in usual
        assert not any("agent=" in each for each in addresses(usual))
        waiting, seen = {"memory?agent=family"}, dict[str, str]()
        while waiting := waiting - seen.keys():
            where = waiting.pop()
            status, seen[where] = await ines.get(where)
            assert status in {200, 404, 405}, where  # some are of forms that post
            waiting |= {each for each in addresses(seen[where]) if "agent=family" in each}
            others = {each for each in addresses(seen[where]) if "agent=family" not in each}
            assert others <= {"memory", "memory/search", "memory/edit"}  # with it as a field
            fields = seen[where].count('name="agent" value="family"')
            assert fields == len(re.findall('method="get" action="/memory/', seen[where]))
        assert len(seen) > 12
        assert "egret" in "".join(seen.values())
        assert "heron" not in "".join(seen.values())
        found = await ines.seen("memory/search", q="bird", **OF_FAMILY)
        assert "egret" in found
        assert "heron" not in found


async def test_what_is_changed_and_forgotten_is_the_chosen_agents(tmp_path):
    main = tmp_path / "workspace" / "people" / "ines"
    async with with_agents(tmp_path) as ines:
        before = {path.name: path.read_text() for path in main.rglob("*.md")}
        page = await ines.seen("memory/edit", path="MEMORY.md", **OF_FAMILY)
        fields = dict(re.findall(r'name="(path|base|since)" value="([^"]*)"', page))
        for where, sent in (
            ("memory/edit", {**fields, "text": "- The egret is white\n"}),
            ("memory/add", {"text": "the stork is white", "path": "", "order": "new"}),
            ("memory/add", {"text": "the crane is grey", "path": "memory/birds.md"}),
        ):
            status, at, _ = await ines.post(f"{where}?agent=family", **sent)
            assert status == 303
            assert "agent=family" in at
        assert ines.read("MEMORY.md") == "- The egret is white\n"
        assert "the crane is grey" in ines.read("memory/birds.md")
        asked = await ines.post("memory/forget?agent=family", words="bird")
        assert "This is what Pip remembers." in asked[2]
        assert "heron" not in asked[2]
        status, at, _ = await ines.post("memory/forgotten?agent=family", words="bird")
        assert (status, "agent=family" in at) == (303, True)
        assert "egret is a bird" not in ines.read("memory/birds.md")
        assert {path.name: path.read_text() for path in main.rglob("*.md")} == before


@pytest.mark.parametrize("name", ["others", "cook", "nobody", "../family", "FAMILY", "agents"])
async def test_an_agent_that_has_no_memory_of_the_visitor_is_not_found(tmp_path, name):
    async with with_agents(tmp_path) as ines:
        for where in ("memory", "memory/advanced", "memory/search", "memory/night"):
            assert (await ines.get(where, agent=name))[0] == 404
        for where in ("forget", "forgotten", "add"):
            sent = {"words": "bird", "text": "a bird", "path": ""}
            assert (await ines.post(f"memory/{where}?agent={name}", **sent))[0] == 404
        assert (await ines.get("reminders", agent=name))[0] == 200


async def test_rules_of_an_agents_key_close_its_memory_in_the_page(tmp_path):
    rules = [{"action": "deny", "key_prefix": "agent:family:"}, {"action": "allow"}]
    async with with_agents(tmp_path, scope={"rules": rules}) as ines:
        assert "heron" in await ines.seen("memory")
        assert "egret" not in await ines.seen("memory", **OF_FAMILY)
        assert (await ines.get("memory/file", path="MEMORY.md", **OF_FAMILY))[0] == 404
